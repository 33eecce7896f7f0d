"""Taints that evict, as the taint eviction controller of Kubernetes."""
