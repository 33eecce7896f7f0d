"""Gang scheduling: pods of a PodGroup start together or not at all, for Kubernetes' own groups and two other kinds."""
