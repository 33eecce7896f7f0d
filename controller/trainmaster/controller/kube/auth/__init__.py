"""Where the configuration and the credentials of a cluster come from: kubeconfig, service account, exec plugins, OIDC."""
