"""hack/trainmaster/devcluster/crds: TODO."""
