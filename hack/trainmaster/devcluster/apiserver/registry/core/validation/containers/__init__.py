"""The rules of containers: environment, mounts, probes, resources, security contexts."""
