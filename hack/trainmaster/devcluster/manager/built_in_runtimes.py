"""The built-in runtimes: a new cluster has those that an installation of Kubeflow Trainer has.

Guarantees:
- What somebody changed stays as it is, and what somebody deleted stays away. What a later version of Trainmaster brings
  replaces only what nobody has touched since it was installed.
- A runtime that was there before, under the name of a built-in one, is left alone.
- A start that finds everything as it left it writes nothing.

What was installed is noted in a ConfigMap, in the same journal as the runtimes themselves. Without its entry a runtime
that is missing is installed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import orjson
import structlog

import trainmaster.runtime
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CLUSTER_TRAINING_RUNTIMES, CONFIGMAPS, GroupResource
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

NOTES: Final = "trainmaster-built-in-runtimes"
"""The ConfigMap in which is noted what was installed."""

NAMESPACE: Final = "kubeflow-system"

_LEFT_OUT: Final = frozenset({"torch-distributed-with-cache"})
"""It needs LeaderWorkerSet, and a service account in each namespace: installations have it only if they ask for it."""

_PACKAGED: Final = Path(trainmaster.runtime.__file__).parent / "runtimes"
_CHECKOUT: Final = Path(__file__).parents[4] / "deploy" / "runtimes"

_FIELD_MANAGER: Final = "trainmaster-cluster"

_log = structlog.get_logger(__name__)


class _Note(NamedTuple):
    """What is noted of a runtime: which object it is, and in which state we left it."""

    uid: str
    generation: int
    digest: str
    """Of what was applied."""

    def is_of(self, live: JsonObject) -> bool:
        """Tell whether an object is still as we left it; the server counts the changes of its specification."""
        metadata = live["metadata"]
        return (self.uid, self.generation) == (metadata["uid"], metadata["generation"])


def built_in_runtimes() -> list[JsonObject]:
    """Read the runtimes that a new cluster has.

    Raises:
        FileNotFoundError: The installation is damaged.
    """
    directory = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
    files = [path for path in sorted(directory.glob("*.yaml")) if path.stem not in _LEFT_OUT]
    if not files:
        raise FileNotFoundError(f"no runtimes are in {directory}; install trainmaster again")
    return [load_yaml(path.read_bytes()) for path in files]


async def install_runtimes(api: Api, runtimes: Iterable[JsonObject]) -> None:
    """Install what is missing, and bring up to date what nobody has changed."""
    before = _read_notes(api)
    notes = dict(before)
    for runtime in runtimes:
        name = runtime["metadata"]["name"]
        note = await _install(api, runtime, notes.get(name))
        if note is not None:
            notes[name] = note
    if notes != before:
        await _write_notes(api, notes)


async def _install(api: Api, runtime: JsonObject, note: _Note | None) -> _Note | None:
    """Apply a runtime if it is ours to write; returns what to note of it, None for what was noted before."""
    name = runtime["metadata"]["name"]
    digest = hashlib.sha256(orjson.dumps(runtime, option=orjson.OPT_SORT_KEYS)).hexdigest()
    live = _find(api, CLUSTER_TRAINING_RUNTIMES, None, name)
    if note is None:
        if live is not None and not _is_applied_by_us(live):
            return None
    elif live is None or note.digest == digest:
        return None
    elif not note.is_of(live):
        _log.info("a built-in runtime that was changed is not brought up to date", runtime=name)
        return None
    try:
        applied, created = await api.patch(
            CLUSTER_TRAINING_RUNTIMES,
            None,
            name,
            runtime,
            patch_type=PatchType.APPLY,
            options=WriteOptions(field_manager=_FIELD_MANAGER),  # not by force: what belongs to others stays theirs
        )
    except StatusError as error:
        if error.code >= 500:
            raise
        _log.warning("a built-in runtime is not installed", runtime=name, reason=error.message)
        return None
    if not created:
        _log.info("a built-in runtime is brought up to date", runtime=name)
    return _Note(applied["metadata"]["uid"], applied["metadata"]["generation"], digest)


def _is_applied_by_us(live: JsonObject) -> bool:
    """Tell whether a runtime without a note is ours: the note was lost, or an earlier start ended before it."""
    return any(entry["manager"] == _FIELD_MANAGER for entry in live["metadata"].get("managedFields") or ())


def _find(api: Api, resource: GroupResource, namespace: str | None, name: str) -> JsonObject | None:
    try:
        return api.get(resource, namespace, name)
    except StatusError as error:
        if error.reason != "NotFound":
            raise
        return None


def _read_notes(api: Api) -> dict[str, _Note]:
    """Read what is noted; entries that somebody damaged count as missing."""
    configmap = _find(api, CONFIGMAPS, NAMESPACE, NOTES) or {}
    notes = {}
    for name, text in (configmap.get("data") or {}).items():
        try:
            content = orjson.loads(text)
            notes[name] = _Note(content["uid"], content["generation"], content["digest"])
        except (ValueError, KeyError, TypeError):
            continue
    return notes


async def _write_notes(api: Api, notes: dict[str, _Note]) -> None:
    configmap = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NOTES, "namespace": NAMESPACE},
        "data": {name: orjson.dumps(note._asdict()).decode() for name, note in sorted(notes.items())},
    }
    options = WriteOptions(field_manager=_FIELD_MANAGER, force=True)
    try:
        await api.patch(CONFIGMAPS, NAMESPACE, NOTES, configmap, patch_type=PatchType.APPLY, options=options)
    except StatusError as error:
        if error.reason != "Forbidden":
            raise
        _log.warning("what runtimes are installed is not noted", reason=error.message)  # its namespace is ending
