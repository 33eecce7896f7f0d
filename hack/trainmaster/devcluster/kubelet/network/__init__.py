"""hack/trainmaster/devcluster/kubelet/network: TODO."""
