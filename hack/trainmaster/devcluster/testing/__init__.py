"""hack/trainmaster/devcluster/testing: TODO."""
