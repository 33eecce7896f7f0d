"""hack/trainmaster/devcluster/apiserver: TODO."""
