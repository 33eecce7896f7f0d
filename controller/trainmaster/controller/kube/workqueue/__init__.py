"""controller/trainmaster/controller/kube/workqueue: TODO."""
