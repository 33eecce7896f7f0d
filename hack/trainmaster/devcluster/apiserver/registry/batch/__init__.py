"""The group batch: Jobs."""
