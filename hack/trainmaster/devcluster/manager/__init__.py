"""hack/trainmaster/devcluster/manager: TODO."""
