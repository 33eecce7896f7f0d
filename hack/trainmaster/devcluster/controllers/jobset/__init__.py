"""The JobSet controller (jobset.x-k8s.io/v1alpha2) and the defaults and rules of its admission webhooks."""
