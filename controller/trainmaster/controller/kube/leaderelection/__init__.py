"""controller/trainmaster/controller/kube/leaderelection: TODO."""
