"""The built-in kinds: what the embedded cluster serves without any CustomResourceDefinition."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry import (
    admissionregistration,
    batch,
    customresourcedefinition,
    priorityclass,
    workload,
)
from trainmaster.devcluster.apiserver.registry.apps import deployment, replicaset
from trainmaster.devcluster.apiserver.registry.core import (
    configmap,
    event,
    namespace,
    persistentvolumeclaim,
    pod,
    secret,
    service,
)
from trainmaster.devcluster.apiserver.registry.plain_kinds import plain_kinds
from trainmaster.devcluster.apiserver.registry.registry import Kind, Registry


def builtin_kinds(registry: Registry, *, workload_aware_scheduling: bool = False) -> list[Kind]:
    """Return all built-in kinds, in the order of discovery; `registry` knows which names definitions may not take."""
    return [
        namespace.kind(),
        pod.kind(),
        configmap.kind(),
        secret.kind(),
        service.kind(),
        event.core_kind(),
        persistentvolumeclaim.kind(),
        deployment.kind(),
        replicaset.kind(),
        batch.kind(),
        event.kind(),
        customresourcedefinition.kind(registry),
        priorityclass.kind(),
        admissionregistration.mutating_kind(),
        admissionregistration.validating_kind(),
        *plain_kinds(),
        *(workload.kinds() if workload_aware_scheduling else ()),
    ]


def builtin_registry(*, workload_aware_scheduling: bool = False) -> Registry:
    """Return a registry that serves the built-in kinds; Workloads and PodGroups only if asked for."""
    registry = Registry()
    for kind in builtin_kinds(registry, workload_aware_scheduling=workload_aware_scheduling):
        registry.add(kind)
    return registry
