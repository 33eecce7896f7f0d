"""The exporter: OTLP over HTTP, as the environment says where the configuration has no option.

`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_CERTIFICATE`, `OTEL_EXPORTER_OTLP_TIMEOUT` and the other variables of
OpenTelemetry's specification are read by its SDK, and so are `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`.
"""

from __future__ import annotations

import os
import socket

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from trainmaster.controller.operator_namespace import pod_namespace
from trainmaster.runtime.version import __version__


def new_exporter(url: str) -> OTLPSpanExporter:
    """Make the exporter.

    Raises:
        ValueError: A variable of the environment cannot be.
    """
    return OTLPSpanExporter(endpoint=url)


def process_resource() -> Resource:
    """Return whose spans they are: this process, unless the environment has another name for it."""
    instance = os.environ.get("POD_NAME") or socket.gethostname()
    attributes = {
        "service.name": "trainmaster",
        "service.version": __version__,
        "service.instance.id": instance,
        "k8s.pod.name": os.environ.get("POD_NAME"),
        "k8s.namespace.name": pod_namespace(),
    }
    ours = Resource.create({name: value for name, value in attributes.items() if value})
    return ours.merge(OTELResourceDetector().detect())
