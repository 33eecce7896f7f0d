"""hack/trainmaster/devcluster/scheduler: TODO."""
