"""Rules of changes of the resources of a pod while it runs."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.pod_qos import qos_class
from trainmaster.devcluster.apiserver.registry.core.validation.annotations import MIRROR_POD
from trainmaster.devcluster.apiserver.registry.core.validation.fields import forbidden
from trainmaster.runtime.jsontree import JsonObject

_RESIZED = ("cpu", "memory")


def validate_pod_resize(pod: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Check a pod whose resources were changed against the old one."""
    spec, before = pod["spec"], old["spec"]
    if MIRROR_POD in (old["metadata"].get("annotations") or {}):
        yield forbidden("", "static pods cannot be resized")
        return
    if (before.get("os") or {}).get("name") == "windows":
        yield forbidden("", "windows pods cannot be resized")
        return
    known = (old.get("status") or {}).get("qosClass") or qos_class(before)
    if qos_class(spec) != known:
        text = "Pod QOS Class may not change as a result of resizing"
        yield FieldError("spec", "Invalid", known, text)
    running = [each for each in (old.get("status") or {}).get("containerStatuses") or () if _runs(each)]
    if running and running[0].get("resources") is None:
        yield forbidden("spec", "Pod running on node without support for resize")
    for field in ("initContainers", "containers"):
        given, containers = spec.get(field) or [], before.get(field) or []
        if [each.get("name") for each in given] != [each.get("name") for each in containers]:
            yield forbidden("spec", "only cpu and memory resources are mutable")
            return
        for index, (container, was) in enumerate(zip(given, containers, strict=True)):
            resources, old_resources = container.get("resources") or {}, was.get("resources") or {}
            if field == "initContainers" and was.get("restartPolicy") != "Always":
                if resources != old_resources:
                    yield forbidden("spec", "resources for non-sidecar init containers are immutable")
                continue
            yield from _container(f"spec.{field}[{index}].resources", resources, old_resources)
            if container.get("resizePolicy") != was.get("resizePolicy"):
                yield forbidden("spec", "only cpu and memory resources are mutable")


def _runs(status: JsonObject) -> bool:
    return (status.get("state") or {}).get("running") is not None


def _container(path: str, resources: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    for side, what in (("requests", "resource requests"), ("limits", "resource limits")):
        given, before = resources.get(side) or {}, old.get(side) or {}
        if not before.keys() <= given.keys():
            yield forbidden(f"{path}.{side}", f"{what} cannot be removed")
        others = {name for name in {*given, *before} if given.get(name) != before.get(name)} - {*_RESIZED}
        if others:
            yield forbidden("spec", "only cpu and memory resources are mutable")
