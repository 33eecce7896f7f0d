"""The custom resource definitions that Trainmaster ships, written down in Python."""
