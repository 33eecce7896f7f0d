"""hack/trainmaster/devcluster/kubelet/prober: TODO."""
