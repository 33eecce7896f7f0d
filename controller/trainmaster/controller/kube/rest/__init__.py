"""controller/trainmaster/controller/kube/rest: TODO."""
