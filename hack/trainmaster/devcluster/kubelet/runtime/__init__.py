"""hack/trainmaster/devcluster/kubelet/runtime: TODO."""
