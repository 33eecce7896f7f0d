"""The controller: Kubernetes machinery, reconcilers, configuration and the command line."""
