"""Admission: the built-in plugins, and webhooks. What they implement is in
`registry.generic`: hooks in `scope`, AdmissionRequest and `Admission` in `admission_request`.
"""
