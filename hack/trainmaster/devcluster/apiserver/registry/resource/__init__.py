"""The group resource.k8s.io: dynamic resource allocation."""
