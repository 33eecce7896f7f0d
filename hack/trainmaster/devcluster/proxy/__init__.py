"""The way to Services, as kube-proxy makes it: the endpoint of each connection, and listeners for pods."""
