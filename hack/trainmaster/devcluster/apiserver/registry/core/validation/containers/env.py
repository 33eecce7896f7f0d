"""Rules of the environment of containers, and of what refers to fields and resources of the pod."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    config_key_problems,
    environment_name_problems,
    invalid,
    label,
    local_path,
    one_of,
    required,
    subdomain,
)
from trainmaster.devcluster.apiserver.registry.labels import label_key_problems
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

_METADATA_FIELDS = ("metadata.name", "metadata.namespace", "metadata.uid")
ENVIRONMENT_FIELDS = (
    *_METADATA_FIELDS,
    *("spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
"""What a variable may show of the pod."""
VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", *_METADATA_FIELDS)
"""What a file of a volume may show of the pod."""
_KNOWN_FIELDS = frozenset(
    {*ENVIRONMENT_FIELDS, *VOLUME_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase"}
)
"""The field labels of pods."""
_SUBSCRIPTED = ("metadata.annotations", "metadata.labels")

_RESOURCES = tuple(
    f"{side}.{name}" for side in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")
_BYTE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVISORS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "local ephemeral storage"}

_KEY_REFS = ("configMapKeyRef", "secretKeyRef")
_SOURCES = ("fieldRef", "resourceFieldRef", *_KEY_REFS, "fileKeyRef")


def validate_env(path: str, variables: list[JsonObject]) -> Iterator[FieldError]:
    """Check the variables of a container; a name may be given twice."""
    for index, variable in enumerate(variables):
        here = f"{path}[{index}]"
        if name := variable.get("name"):
            yield from invalid(f"{here}.name", name, environment_name_problems(name))
        else:
            yield required(f"{here}.name")
        if (source := variable.get("valueFrom")) is not None:
            yield from _value_from(f"{here}.valueFrom", source, has_value=bool(variable.get("value")))


def _value_from(path: str, source: JsonObject, *, has_value: bool) -> Iterator[FieldError]:
    if (field := source.get("fieldRef")) is not None:
        yield from field_ref(f"{path}.fieldRef", field, ENVIRONMENT_FIELDS)
    if (resource := source.get("resourceFieldRef")) is not None:
        yield from resource_field_ref(f"{path}.resourceFieldRef", resource, in_volume=False)
    for kind in _KEY_REFS:
        if (selector := source.get(kind)) is not None:
            yield from _key_ref(f"{path}.{kind}", selector)
    if (file := source.get("fileKeyRef")) is not None:
        yield from _file_key_ref(f"{path}.fileKeyRef", file)
    count = sum(source.get(kind) is not None for kind in _SOURCES)
    if count == 0:
        names = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield FieldError(path, "Invalid", "", f"must specify one of: {names}")
    elif has_value:
        yield FieldError(path, "Invalid", "", "may not be specified when `value` is not empty")
    elif count > 1:
        yield FieldError(path, "Invalid", "", "may not have more than one field specified at a time")


def field_ref(path: str, selector: JsonObject, supported: Collection[str]) -> Iterator[FieldError]:
    """Check what shows a field of the pod."""
    version, field = selector.get("apiVersion") or "", selector.get("fieldPath") or ""
    if not version or not field:
        yield required(f"{path}.{'fieldPath' if version else 'apiVersion'}")
        return
    name, subscript = _split("spec.nodeName" if field == "spec.host" else field)
    if version != "v1":
        problem = f"unsupported pod version: {version}"
    elif name in _KNOWN_FIELDS and (subscript is None or name in _SUBSCRIPTED):
        problem = ""
    elif subscript is not None and name in _KNOWN_FIELDS:
        problem = f"field label does not support subscript: {field}"
    else:
        problem = f"field label not supported: {field}"
    if problem:
        yield FieldError(f"{path}.fieldPath", "Invalid", field, f"error converting fieldPath: {problem}")
    elif subscript is None:
        yield from one_of(f"{path}.fieldPath", name, supported)
    else:
        key = subscript.lower() if name == "metadata.annotations" else subscript
        yield from invalid(path, key, label_key_problems(key))


def _split(field: str) -> tuple[str, str | None]:
    """Split `metadata.labels['app']` into the field and its key."""
    if not field.endswith("']") or "['" not in field[:-2]:
        return field, None
    name, _, subscript = field[:-2].partition("['")
    return (name, subscript) if name else (field, None)


def resource_field_ref(path: str, selector: JsonObject, *, in_volume: bool) -> Iterator[FieldError]:
    """Check what shows a resource of a container; a file must name the container."""
    resource = selector.get("resource") or ""
    if in_volume and not selector.get("containerName"):
        yield required(f"{path}.containerName")
    elif not resource:
        yield required(f"{path}.resource")
    elif not resource.startswith(_HUGE_PAGES):
        yield from one_of(f"{path}.resource", resource, _RESOURCES)
    divisor = Quantity.parse(selector.get("divisor") or "0")
    if not divisor:
        return
    kind = resource.partition(".")[2]
    supported = ("1m", "1") if kind == "cpu" else _BYTE_DIVISORS
    if (resource in _RESOURCES or resource.startswith(_HUGE_PAGES)) and str(divisor) not in supported:
        values = "1m and 1" if kind == "cpu" else ", ".join(_BYTE_DIVISORS)
        text = f"only divisor's values {values} are supported with the {_DIVISORS.get(kind, 'hugepages')} resource"
        yield FieldError(f"{path}.divisor", "Invalid", resource, text)


def _key_ref(path: str, selector: JsonObject) -> Iterator[FieldError]:
    yield from subdomain(f"{path}.name", selector.get("name") or "")
    if key := selector.get("key"):
        yield from invalid(f"{path}.key", key, config_key_problems(key))
    else:
        yield required(f"{path}.key")


def _file_key_ref(path: str, selector: JsonObject) -> Iterator[FieldError]:
    if key := selector.get("key"):
        yield from invalid(f"{path}.key", key, environment_name_problems(key))
    else:
        yield required(f"{path}.key")
    if volume := selector.get("volumeName"):
        yield from label(f"{path}.volumeName", volume)
    else:
        yield required(f"{path}.volumeName")
    if file := selector.get("path"):
        yield from local_path(f"{path}.path", file)
    else:
        yield required(f"{path}.path")


def validate_env_from(path: str, sources: list[JsonObject]) -> Iterator[FieldError]:
    """Check what a container takes all variables of."""
    for index, source in enumerate(sources):
        here = f"{path}[{index}]"
        if prefix := source.get("prefix"):
            yield from invalid(f"{here}.prefix", prefix, environment_name_problems(prefix))
        kinds = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        for kind in kinds:
            if name := source[kind].get("name"):
                yield from subdomain(f"{here}.{kind}.name", name)
            else:
                yield required(f"{here}.{kind}.name")
        if not kinds:
            yield FieldError(path, "Invalid", "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            yield FieldError(path, "Invalid", "", "may not have more than one field specified at a time")
