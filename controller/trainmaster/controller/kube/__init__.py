"""Kubernetes machinery: requests, watch streams, informers, the work queue, events and leader election."""
