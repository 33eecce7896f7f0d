"""controller/trainmaster/controller/kube/cache: TODO."""
