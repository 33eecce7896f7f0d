"""Rules of probes and lifecycle hooks, and of the handlers of both."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    forbidden,
    header_name_problems,
    invalid,
    not_negative,
    one_of,
    port,
    port_number,
    required,
)
from trainmaster.runtime.jsontree import JsonObject

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
"""The fields of a container that hold probes."""
_HOOKS = ("postStart", "preStop")
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")


def validate_probes(path: str, container: JsonObject) -> Iterator[FieldError]:
    """Check the probes of a container."""
    for name in PROBES:
        probe = container.get(name)
        if probe is None:
            continue
        here = f"{path}.{name}"
        yield from _handlers(here, probe, _PROBE_HANDLERS, None)
        for field in _NUMBERS:
            yield from not_negative(f"{here}.{field}", probe.get(field) or 0)
        grace = probe.get("terminationGracePeriodSeconds")
        if grace is not None and grace <= 0:
            yield FieldError(f"{here}.terminationGracePeriodSeconds", "Invalid", grace, "must be greater than 0")
        if name == "readinessProbe":
            if grace is not None:
                text = "must not be set for readinessProbes"
                yield FieldError(f"{here}.terminationGracePeriodSeconds", "Invalid", grace, text)
        elif probe.get("successThreshold", 1) != 1:
            yield FieldError(f"{here}.successThreshold", "Invalid", probe["successThreshold"], "must be 1")


def validate_lifecycle(path: str, lifecycle: JsonObject, grace_seconds: int) -> Iterator[FieldError]:
    """Check the hooks of a container."""
    for hook in _HOOKS:
        if lifecycle.get(hook) is not None:
            yield from _handlers(f"{path}.{hook}", lifecycle[hook], _HOOK_HANDLERS, grace_seconds)


def _handlers(path: str, given: JsonObject, kinds: tuple[str, ...], grace: int | None) -> Iterator[FieldError]:
    found = [kind for kind in kinds if given.get(kind) is not None]
    if not found:
        yield required(path, "must specify a handler type")
        return
    yield from _handler(f"{path}.{found[0]}", found[0], given[found[0]], grace)
    for other in found[1:]:
        yield forbidden(f"{path}.{other}", "may not specify more than 1 handler type")


def _handler(path: str, kind: str, action: JsonObject, grace: int | None) -> Iterator[FieldError]:
    match kind:
        case "exec":
            if not action.get("command"):
                yield required(f"{path}.command")
        case "httpGet":
            if not action.get("path"):
                yield required(f"{path}.path")
            yield from port(f"{path}.port", action.get("port", 0))
            yield from one_of(f"{path}.scheme", action.get("scheme") or "", ("HTTP", "HTTPS"))
            for header in action.get("httpHeaders") or ():
                name = header.get("name") or ""
                yield from invalid(f"{path}.httpHeaders", name, header_name_problems(name))
        case "tcpSocket":
            yield from port(f"{path}.port", action.get("port", 0))
        case "grpc":
            yield from port_number(f"{path}.port", action.get("port") or 0)
        case "sleep":
            seconds = action.get("seconds") or 0
            if grace is not None and not 0 <= seconds <= grace:
                text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                yield FieldError(path, "Invalid", seconds, text)
