"""The protection of persistent volume claims that pods use."""
