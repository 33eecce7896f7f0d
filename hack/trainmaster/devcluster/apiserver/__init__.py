"""The API server, as in kube-apiserver: everything that a request passes on its way from HTTP to the store."""
