"""hack/trainmaster/devcluster/cli: TODO."""
