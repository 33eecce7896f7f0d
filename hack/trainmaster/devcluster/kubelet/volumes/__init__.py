"""hack/trainmaster/devcluster/kubelet/volumes: TODO."""
