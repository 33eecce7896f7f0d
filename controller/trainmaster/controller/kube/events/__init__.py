"""controller/trainmaster/controller/kube/events: TODO."""
