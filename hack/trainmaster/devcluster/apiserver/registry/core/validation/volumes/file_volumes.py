"""Rules of volumes that show data of the API as files: ConfigMaps, Secrets, fields of the pod, tokens."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.containers.env import (
    VOLUME_FIELDS,
    field_ref,
    resource_field_ref,
)
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    file_mode,
    forbidden,
    local_path,
    needs,
    required,
)
from trainmaster.runtime.jsontree import JsonObject

_SHORTEST_TOKEN = 600
_LONGEST_TOKEN = 2**32
_PROJECTIONS = ("secret", "configMap", "downwardAPI", "serviceAccountToken")


def validate_secret(path: str, source: JsonObject) -> Iterator[FieldError]:
    """Check a Secret as a volume."""
    yield from needs(source, path, "secretName")
    yield from file_mode(source, path, "defaultMode")
    yield from _items(path, source)


def validate_config_map(path: str, source: JsonObject) -> Iterator[FieldError]:
    """Check a ConfigMap as a volume."""
    yield from needs(source, path, "name")
    yield from file_mode(source, path, "defaultMode")
    yield from _items(path, source)


def _items(path: str, source: JsonObject) -> Iterator[FieldError]:
    for index, item in enumerate(source.get("items") or ()):
        here = f"{path}.items[{index}]"
        yield from needs(item, here, "key", "path")
        yield from local_path(f"{here}.path", item.get("path") or "")
        yield from file_mode(item, here, "mode")


def validate_downward_api(path: str, source: JsonObject) -> Iterator[FieldError]:
    """Check fields of the pod as a volume; errors do not say which file they are of, as in the real server."""
    yield from file_mode(source, path, "defaultMode")
    for item in source.get("items") or ():
        yield from _field_as_file(path, item)


def _field_as_file(path: str, item: JsonObject) -> Iterator[FieldError]:
    yield from needs(item, path, "path")
    yield from local_path(f"{path}.path", item.get("path") or "")
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        yield from field_ref(f"{path}.fieldRef", field, VOLUME_FIELDS)
        if resource is not None:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield FieldError(path, "Invalid", "resource", text)
    elif resource is not None:
        yield from resource_field_ref(f"{path}.resourceFieldRef", resource, in_volume=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    yield from file_mode(item, path, "mode")


def validate_projected(path: str, volume: JsonObject) -> Iterator[FieldError]:
    """Check several sources in one volume: no two files may have the same path."""
    yield from file_mode(volume, path, "defaultMode")
    seen: set[str] = set()
    for index, source in enumerate(volume.get("sources") or ()):
        here = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if (given := source.get(kind)) is not None:
                yield from needs(given, f"{here}.{kind}", "name")
                yield from _items(f"{here}.{kind}", given)
                yield from _collisions(path, given, seen, given.get("name") or "")
        if (given := source.get("downwardAPI")) is not None:
            for item in given.get("items") or ():
                yield from _field_as_file(f"{here}.downwardAPI", item)
            yield from _collisions(path, given, seen, None)
        if (token := source.get("serviceAccountToken")) is not None:
            yield from _token(path, f"{here}.serviceAccountToken", token)
        if sum(source.get(kind) is not None for kind in _PROJECTIONS) > 1:
            yield forbidden(here, "may not specify more than 1 volume type per source")


def _collisions(path: str, source: JsonObject, seen: set[str], owner: str | None) -> Iterator[FieldError]:
    for item in source.get("items") or ():
        file = item.get("path")
        if file in seen:
            yield FieldError(path, "Invalid", file if owner is None else owner, "conflicting duplicate paths")
        elif file:
            seen.add(file)


def _token(volume_path: str, path: str, token: JsonObject) -> Iterator[FieldError]:
    seconds = token.get("expirationSeconds") or 0
    if seconds < _SHORTEST_TOKEN:
        text = "may not specify a duration less than 10 minutes"
        yield FieldError(f"{path}.expirationSeconds", "Invalid", seconds, text)
    if seconds > _LONGEST_TOKEN:
        text = "may not specify a duration larger than 2^32 seconds"
        yield FieldError(f"{path}.expirationSeconds", "Invalid", seconds, text)
    if file := token.get("path"):
        yield from local_path(f"{volume_path}.path", file)
    else:
        yield required(f"{volume_path}.path")


def validate_tokens_have_account(path: str, spec: JsonObject) -> Iterator[FieldError]:
    """Check that a pod without a service account asks for no token of one."""
    if spec.get("serviceAccountName"):
        return
    for number, volume in enumerate(spec.get("volumes") or ()):
        for index, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if source.get("serviceAccountToken") is not None:
                here = f"{path}.volumes[{number}].projected.sources[{index}].serviceAccountToken"
                yield forbidden(here, "must not be specified when serviceAccountName is not set")
