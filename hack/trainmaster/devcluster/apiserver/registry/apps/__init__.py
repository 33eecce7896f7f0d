"""The group apps: Deployments and ReplicaSets."""
