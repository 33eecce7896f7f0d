"""Rules of the volumes of pods and pod templates: names, one source each, and the files of what the API has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.container_validation import field_ref
from trainmaster.devcluster.apiserver.registry.fields import forbidden, label, local_path, needs, required
from trainmaster.runtime.jsontree import JsonObject

_SHORTEST_TOKEN = 600
_PROJECTIONS = ("secret", "configMap", "downwardAPI", "serviceAccountToken")
_VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
"""What a file of a volume may show of the pod."""
_NEEDED = {
    "secret": "secretName",
    "configMap": "name",
    "persistentVolumeClaim": "claimName",
    "hostPath": "path",
    "csi": "driver",
    "ephemeral": "volumeClaimTemplate",
}
"""What says which one is meant, by the kind of the source."""


def validate_volumes(path: str, volumes: Iterable[JsonObject]) -> tuple[set[str], list[FieldError]]:
    """Check volumes; returns the names of the sound ones, which containers may mount, and what is wrong with others."""
    sound: set[str] = set()
    errors: list[FieldError] = []
    for index, volume in enumerate(volumes):
        here = f"{path}[{index}]"
        problems = [*_source(here, volume), *_name(f"{here}.name", volume.get("name") or "", sound)]
        if not problems:
            sound.add(volume["name"])
        errors += problems
    return sound, errors


def _name(path: str, name: str, others: set[str]) -> Iterator[FieldError]:
    if name:
        yield from label(path, name)
    else:
        yield required(path)
    if name in others:
        yield FieldError(path, "Duplicate", name)


def _source(path: str, volume: JsonObject) -> Iterator[FieldError]:
    kinds = [kind for kind, value in volume.items() if kind != "name" and value is not None]
    if not kinds:
        yield required(path, "must specify a volume type")
        return
    kind, source = kinds[0], volume[kinds[0]]
    here = f"{path}.{kind}"
    if kind in _NEEDED:
        yield from needs(source, here, _NEEDED[kind])
    if kind in ("secret", "configMap"):
        yield from _items(here, source)
    elif kind == "downwardAPI":
        yield from _fields(here, source)
    elif kind == "projected":
        yield from _projected(here, source)
    for other in kinds[1:]:
        yield forbidden(f"{path}.{other}", "may not specify more than 1 volume type")


def _items(path: str, source: JsonObject) -> Iterator[FieldError]:
    for index, item in enumerate(source.get("items") or ()):
        here = f"{path}.items[{index}]"
        yield from needs(item, here, "key", "path")
        yield from local_path(f"{here}.path", item.get("path") or "")


def _fields(path: str, source: JsonObject) -> Iterator[FieldError]:
    """Check fields of the pod as files; errors do not say which file they are of, as in the real server."""
    for item in source.get("items") or ():
        yield from needs(item, path, "path")
        yield from local_path(f"{path}.path", item.get("path") or "")
        if (field := item.get("fieldRef")) is not None:
            yield from field_ref(f"{path}.fieldRef", field, _VOLUME_FIELDS)
        elif item.get("resourceFieldRef") is None:
            yield required(path, "one of fieldRef and resourceFieldRef is required")


def _projected(path: str, volume: JsonObject) -> Iterator[FieldError]:
    """Check several sources in one volume."""
    for index, source in enumerate(volume.get("sources") or ()):
        here = f"{path}.sources[{index}]"
        for kind in ("secret", "configMap"):
            if (given := source.get(kind)) is not None:
                yield from needs(given, f"{here}.{kind}", "name")
                yield from _items(f"{here}.{kind}", given)
        yield from _fields(f"{here}.downwardAPI", source.get("downwardAPI") or {})
        if (token := source.get("serviceAccountToken")) is not None:
            if (seconds := token.get("expirationSeconds") or 0) < _SHORTEST_TOKEN:
                text = "may not specify a duration less than 10 minutes"
                yield FieldError(f"{here}.serviceAccountToken.expirationSeconds", "Invalid", seconds, text)
            yield from needs(token, path, "path")
        if sum(source.get(kind) is not None for kind in _PROJECTIONS) > 1:
            yield forbidden(here, "may not specify more than 1 volume type per source")
