"""controller/trainmaster/controller/kube/auth: TODO."""
