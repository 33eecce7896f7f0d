"""Admission: AdmissionRequest and its interface, the built-in plugins, and webhooks."""
