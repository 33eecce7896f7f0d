"""The JobSet controller (jobset.x-k8s.io/v1alpha2) and what its admission webhooks do: defaults and validation."""
