"""hack/trainmaster/devcluster/apiserver/handlers: TODO."""
