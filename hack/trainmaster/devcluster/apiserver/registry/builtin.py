"""The built-in kinds: what the embedded cluster serves without any CustomResourceDefinition."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.admissionregistration import webhookconfiguration
from trainmaster.devcluster.apiserver.registry.apiextensions import customresourcedefinition
from trainmaster.devcluster.apiserver.registry.apps import deployment, replicaset
from trainmaster.devcluster.apiserver.registry.autoscaling import horizontalpodautoscaler
from trainmaster.devcluster.apiserver.registry.batch import job
from trainmaster.devcluster.apiserver.registry.coordination import lease
from trainmaster.devcluster.apiserver.registry.core import (
    configmap,
    endpoints,
    event,
    limitrange,
    namespace,
    node,
    persistentvolumeclaim,
    pod,
    resourcequota,
    secret,
    service,
    serviceaccount,
)
from trainmaster.devcluster.apiserver.registry.discovery import endpointslice
from trainmaster.devcluster.apiserver.registry.networking import networkpolicy
from trainmaster.devcluster.apiserver.registry.node import runtimeclass
from trainmaster.devcluster.apiserver.registry.policy import poddisruptionbudget
from trainmaster.devcluster.apiserver.registry.rbac import role, rolebinding
from trainmaster.devcluster.apiserver.registry.registry import Kind, Registry
from trainmaster.devcluster.apiserver.registry.resource import (
    deviceclass,
    resourceclaim,
    resourceclaimtemplate,
    resourceslice,
)
from trainmaster.devcluster.apiserver.registry.scheduling import priorityclass


def builtin_kinds(registry: Registry) -> list[Kind]:
    """Return all built-in kinds, in the order of discovery; `registry` knows which names definitions may not take."""
    return [
        namespace.kind(),
        pod.kind(),
        configmap.kind(),
        secret.kind(),
        service.kind(),
        serviceaccount.kind(),
        event.core_kind(),
        node.kind(),
        persistentvolumeclaim.kind(),
        limitrange.kind(),
        resourcequota.kind(),
        endpoints.kind(),
        deployment.kind(),
        replicaset.kind(),
        horizontalpodautoscaler.kind(),
        job.kind(),
        lease.kind(),
        event.kind(),
        endpointslice.kind(),
        networkpolicy.kind(),
        poddisruptionbudget.kind(),
        customresourcedefinition.kind(registry),
        priorityclass.kind(),
        runtimeclass.kind(),
        resourceclaim.kind(),
        resourceclaimtemplate.kind(),
        deviceclass.kind(),
        resourceslice.kind(),
        webhookconfiguration.mutating_kind(),
        webhookconfiguration.validating_kind(),
        role.kind(),
        rolebinding.kind(),
        role.cluster_kind(),
        rolebinding.cluster_kind(),
    ]


def builtin_registry() -> Registry:
    """Return a registry that serves the built-in kinds."""
    registry = Registry()
    for kind in builtin_kinds(registry):
        registry.add(kind)
    return registry
