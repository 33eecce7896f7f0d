"""Where the address and credentials of a cluster come from: kubeconfig, service account, exec plugins, OIDC."""
