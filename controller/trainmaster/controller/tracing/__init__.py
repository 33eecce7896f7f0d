"""Traces by OpenTelemetry: what a reconcile, or a review of the webhooks, consists of, and how long each part took.

- `installed` decides whether there are any, and is all that the manager imports unless its configuration asks for them;
- `tracing` has the parts together, says which spans are recorded, and ends them;
- `spans` makes the spans, each where something else has its seam already;
- `export_queue` hands them to the exporter.

Nothing else in the controller imports OpenTelemetry, and this package imports it only when traces are configured.
"""
