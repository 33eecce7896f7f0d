"""The group admissionregistration.k8s.io: configurations of admission webhooks."""
