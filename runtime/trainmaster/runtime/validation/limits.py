"""The limits of the schemas: how many elements a list may have, and how many characters a text.

An API server enforces those of the definitions that it has before it calls a validating webhook. Here they are enforced
again, before anything is done that costs more than counting: the definitions may be other ones than ours, and whoever
reaches the webhook's port can send it anything.

The tables hold every limit of `deploy/crds`; nothing below a list that is too long is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.jsontree import JsonObject


class Items(int):
    """The most elements of a list."""


class Length(int):
    """The most characters of a text."""


_SUBDOMAIN: Final = Length(253)
_LABEL: Final = Length(63)
_VARIABLES: Final = Items(128)
_ARGUMENT: Final = Length(1 << 20)

_JOBS: Final = "spec.runtimePatches[].trainingRuntimeSpec.template.spec.replicatedJobs"
_PODS: Final = f"{_JOBS}[].template.spec.template.spec"
_CLAIMS: Final = "spec.trainer.resourceClaimsPerNode"
_TARGETS: Final = "spec.mlPolicy.torch.envInjection.targets"


def _containers(path: str) -> dict[str, Items | Length]:
    return {
        path: Items(64),
        f"{path}[].name": _SUBDOMAIN,
        f"{path}[].env": _VARIABLES,
        f"{path}[].volumeMounts": Items(128),
    }


_POLICY: Final = "spec.resiliencePolicy"
_DURATIONS: Final = (
    *("gracePeriod", "restartWindow", "nodes.for", "nodes.lostAfter", "progress.within", "progress.start"),
    *("logs[].within", "logs[].every"),
)
_RESILIENCE: Final[Mapping[str, Items | Length]] = {
    **{f"{_POLICY}.{each}": Length(32) for each in _DURATIONS},
    f"{_POLICY}.exitCodes.fail": Items(64),
    f"{_POLICY}.exitCodes.retry": Items(64),
    f"{_POLICY}.logs": Items(16),
    f"{_POLICY}.logs[].name": _LABEL,
    f"{_POLICY}.logs[].pattern": Length(512),
}

_GROUPS: Final = ("spec.scheduling", "spec.scheduling.replicatedJobs[]", "spec.scheduling.replicatedJobs[].job")

TRAINJOB: Final[Mapping[str, Items | Length]] = {
    "spec.runtimeRef.name": _SUBDOMAIN,
    "spec.runtimeRef.apiGroup": _SUBDOMAIN,
    "spec.runtimeRef.kind": _SUBDOMAIN,
    "spec.managedBy": _SUBDOMAIN,
    "spec.initializer.dataset.env": _VARIABLES,
    "spec.initializer.dataset.storageUri": Length(2048),
    "spec.initializer.model.env": _VARIABLES,
    "spec.initializer.model.storageUri": Length(2048),
    "spec.trainer.image": Length(500),
    "spec.trainer.command": Items(128),
    "spec.trainer.command[]": _ARGUMENT,
    "spec.trainer.args": Items(128),
    "spec.trainer.args[]": _ARGUMENT,
    "spec.trainer.env": _VARIABLES,
    _CLAIMS: Items(32),
    f"{_CLAIMS}[].name": _LABEL,
    f"{_CLAIMS}[].resourceClaimName": _SUBDOMAIN,
    f"{_CLAIMS}[].resourceClaimTemplateName": _SUBDOMAIN,
    f"{_CLAIMS}[].containerNames": Items(8),
    f"{_CLAIMS}[].containerNames[]": _LABEL,
    "spec.runtimePatches": Items(16),
    "spec.runtimePatches[].manager": _SUBDOMAIN,
    _JOBS: Items(100),
    f"{_JOBS}[].name": _SUBDOMAIN,
    **_containers(f"{_PODS}.containers"),
    **_containers(f"{_PODS}.initContainers"),
    f"{_PODS}.imagePullSecrets": Items(64),
    f"{_PODS}.resourceClaims": Items(32),
    f"{_PODS}.resourceClaims[].name": _LABEL,
    f"{_PODS}.resourceClaims[].resourceClaimName": _SUBDOMAIN,
    f"{_PODS}.resourceClaims[].resourceClaimTemplateName": _SUBDOMAIN,
    f"{_PODS}.schedulingGates": Items(16),
    f"{_PODS}.serviceAccountName": _SUBDOMAIN,
    f"{_PODS}.tolerations": Items(128),
    f"{_PODS}.volumes": Items(128),
    **_RESILIENCE,
}
"""By path; `[]` is any element of a list."""

RUNTIME: Final[Mapping[str, Items | Length]] = {
    "spec.mlPolicy.custom.name": _SUBDOMAIN,
    "spec.podGroupPolicy.custom.name": _SUBDOMAIN,
    "spec.mlPolicy.mpi.sshAuthMountPath": Length(4096),
    _TARGETS: Items(16),
    f"{_TARGETS}[].jobName": _SUBDOMAIN,
    f"{_TARGETS}[].containerNames": Items(8),
    f"{_TARGETS}[].containerNames[]": _LABEL,
    **{f"{each}.schedulingConstraints.topology": Items(1) for each in _GROUPS},
    **{f"{each}.schedulingConstraints.topology[].key": _SUBDOMAIN for each in _GROUPS},
    **{f"{each}.resourceClaims": Items(4) for each in _GROUPS[1:]},
    **{f"{each}.resourceClaims[].name": _LABEL for each in _GROUPS[1:]},
    **{f"{each}.resourceClaims[].resourceClaimName": _SUBDOMAIN for each in _GROUPS[1:]},
    **{f"{each}.resourceClaims[].resourceClaimTemplateName": _SUBDOMAIN for each in _GROUPS[1:]},
    _GROUPS[1].removesuffix("[]"): Items(8),
    f"{_GROUPS[1]}.targetReplicatedJobs": Items(8),
    f"{_GROUPS[1]}.targetReplicatedJobs[]": _LABEL,
    "spec.template.spec.replicatedJobs[].dependsOn": Items(5),
    "spec.template.spec.volumeClaimPolicies": Items(50),
    "spec.template.spec.volumeClaimPolicies[].templates": Items(50),
    **_RESILIENCE,
}
"""The same of both kinds of runtimes."""


@dataclass(slots=True)
class _Limited:
    """A value that has a limit, or something below that has one."""

    most: Items | Length | None = None
    fields: dict[str, _Limited] = field(default_factory=dict)
    items: _Limited | None = None


def _tree(limits: Mapping[str, Items | Length]) -> _Limited:
    root = _Limited()
    for path, most in limits.items():
        node = root
        for name in path.split("."):
            node = node.fields.setdefault(name.removesuffix("[]"), _Limited())
            if name.endswith("[]"):
                node.items = node.items or _Limited()
                node = node.items
        node.most = most
    return root


_TRAINJOB_TREE: Final = _tree(TRAINJOB)
_RUNTIME_TREE: Final = _tree(RUNTIME)


def trainjob_limits(obj: JsonObject) -> Iterator[FieldError]:
    """Find what is too long, or too many, in a TrainJob; values of wrong types pass."""
    return _exceeded(obj, _TRAINJOB_TREE, "")


def runtime_limits(obj: JsonObject) -> Iterator[FieldError]:
    """Find what is too long, or too many, in a runtime; values of wrong types pass."""
    return _exceeded(obj, _RUNTIME_TREE, "")


def _exceeded(value: Any, limited: _Limited, path: str) -> Iterator[FieldError]:
    match value:
        case str() if isinstance(limited.most, Length) and len(value) > limited.most:
            yield FieldError(path, f"may not be more than {limited.most} bytes", type="TooLong")
        case list() if isinstance(limited.most, Items) and len(value) > limited.most:
            yield FieldError(path, f"must have at most {limited.most} items", type="TooMany", value=len(value))
        case list() if limited.items is not None:
            for position, item in enumerate(value):
                yield from _exceeded(item, limited.items, f"{path}[{position}]")
        case dict():
            for name, below in limited.fields.items():
                if name in value:
                    yield from _exceeded(value[name], below, f"{path}.{name}" if path else name)
