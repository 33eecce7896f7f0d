"""The runtime that a TrainJob names: whether it exists, and what to say if it does not."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from trainmaster.controller.cli.files.manifests import built_in_directory, built_in_file, built_in_names
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, RUNTIMES, TRAINING_RUNTIMES
from trainmaster.runtime.api.constants import CLUSTER_TRAINING_RUNTIME_KIND, GROUP, TRAINING_RUNTIME_KIND
from trainmaster.runtime.jsontree import JsonObject

_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class RuntimeReference:
    """Which runtime a TrainJob is made of."""

    kind: str
    name: str
    namespace: str
    """Of the TrainJob."""

    supplied: bool
    """Whether the files that have the TrainJob have the runtime as well."""

    def is_missed_in(self, message: str) -> bool:
        """Whether a message of the server says that this runtime does not exist."""
        return f'"{self.name}"' in message and "not found" in message


def reference_of(
    trainjob: JsonObject, *, namespace: str, supplied: Collection[tuple[str, str | None, str | None]]
) -> RuntimeReference | None:
    """Return the runtime that a TrainJob names; None if that is of another group, or unreadable.

    `supplied` has kind, namespace and name of the objects in the files.
    """
    spec = trainjob.get("spec")
    reference = spec.get("runtimeRef") if isinstance(spec, dict) else None
    if not isinstance(reference, dict) or reference.get("apiGroup", GROUP) != GROUP:
        return None
    kind, name = reference.get("kind", CLUSTER_TRAINING_RUNTIME_KIND), reference.get("name")
    if kind not in RUNTIMES or not isinstance(name, str) or not name:
        return None
    place = namespace if kind == TRAINING_RUNTIME_KIND else None
    return RuntimeReference(kind, name, namespace, (kind, place, name) in supplied)


async def is_missing(client: KubeClient, reference: RuntimeReference) -> bool:
    """Look up whether a runtime does not exist; what cannot be read counts as existing."""
    resource = RUNTIMES[reference.kind]
    try:
        await client.get(resource, reference.namespace if resource.namespaced else None, reference.name)
    except NotFound:
        return True
    except ApiError:
        return False
    return False


async def explain_missing(client: KubeClient, reference: RuntimeReference, *, is_written: bool = True) -> list[str]:
    """Say that a runtime does not exist, which ones do, and what to do.

    `is_written`: somebody has written the TrainJob; else it was made of a program.
    """
    shared = await _names(client, CLUSTER_TRAINING_RUNTIMES, None)
    own = await _names(client, TRAINING_RUNTIMES, reference.namespace)
    same_kind = own if reference.kind == TRAINING_RUNTIME_KIND else shared
    where = f"namespace {reference.namespace}" if reference.kind == TRAINING_RUNTIME_KIND else "this cluster"
    near = difflib.get_close_matches(reference.name, [*(same_kind or ()), *built_in_names()], n=1)
    nearest = near[0] if near else ""
    meant = f' (did you mean "{nearest}"?)' if nearest and nearest != reference.name else ""
    return [
        f'{reference.kind} "{reference.name}" does not exist in {where}{meant}',
        *_listing(reference, shared, own),
        f"  what next: {(_remedy if is_written else _remedy_of_program)(reference, shared or [], own or [], nearest)}",
    ]


def _listing(reference: RuntimeReference, shared: list[str] | None, own: list[str] | None) -> list[str]:
    lines = []
    for names, what in ((shared, "ClusterTrainingRuntimes"), (own, f"TrainingRuntimes in {reference.namespace}")):
        if names is not None:
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            lines.append(f"  {what}: {', '.join(names[:_LISTED]) or 'none'}{more}")
    return lines


def _remedy(reference: RuntimeReference, shared: list[str], own: list[str], near: str) -> str:
    namespaced = reference.kind == TRAINING_RUNTIME_KIND
    if reference.name in (shared if namespaced else own):
        other = CLUSTER_TRAINING_RUNTIME_KIND if namespaced else TRAINING_RUNTIME_KIND
        return f"there is a {other} of this name: set spec.runtimeRef.kind to {other}"
    if near in (own if namespaced else shared):
        return f'correct spec.runtimeRef.name, or add the file of "{reference.name}" to those of this command'
    for name in (reference.name, near):
        if not namespaced and (file := built_in_file(name)) is not None:
            return f'"{name}" comes with Trainmaster: add {file} to the files of this command, or apply it'
    return (
        f"add the file of the runtime to those of this command, or apply it; {built_in_directory()} has those that "
        f"come with Trainmaster: {', '.join(built_in_names())}"
    )


def _remedy_of_program(reference: RuntimeReference, shared: list[str], own: list[str], near: str) -> str:
    if near in (*shared, *own):
        return f"name it by --runtime {near}"
    if (file := built_in_file(reference.name) or built_in_file(near)) is not None:
        applying = f"`kubectl apply --server-side -f {file}`"
        return f'"{file.stem}" comes with Trainmaster: {applying} brings it; or name another one by --runtime'
    return f"name another one by --runtime; {built_in_directory()} has those that come with Trainmaster"


async def _names(client: KubeClient, resource: Resource, namespace: str | None) -> list[str] | None:
    """List runtimes; None for somebody who may not."""
    try:
        found = await client.list(resource, namespace)
    except ApiError:
        return None
    return sorted(item["metadata"]["name"] for item in found["items"])
