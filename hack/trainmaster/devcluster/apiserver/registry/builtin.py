"""The built-in kinds: what the embedded cluster serves without any custom resource definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.jsonpath import compile_path
from trainmaster.devcluster.apiserver.registry.kind import ALL_VERBS, Column, Kind
from trainmaster.devcluster.apiserver.registry.registry import Registry
from trainmaster.devcluster.apiserver.registry.strategies import core, devices
from trainmaster.devcluster.apiserver.registry.strategies.base import Strategy
from trainmaster.devcluster.apiserver.registry.strategies.data import ConfigMapStrategy, SecretStrategy
from trainmaster.devcluster.apiserver.registry.strategies.definitions import DefinitionStrategy
from trainmaster.devcluster.apiserver.registry.strategies.events import CoreEventStrategy, EventStrategy
from trainmaster.devcluster.apiserver.registry.strategies.jobs import JobStrategy
from trainmaster.devcluster.apiserver.registry.strategies.pods import PodStrategy
from trainmaster.devcluster.apiserver.registry.strategies.policies import (
    LimitRangeStrategy,
    PriorityClassStrategy,
    RuntimeClassStrategy,
)
from trainmaster.devcluster.apiserver.registry.strategies.webhooks import WebhookConfigurationStrategy
from trainmaster.devcluster.apiserver.resources import EVENTS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, GroupResource
from trainmaster.devcluster.apiserver.schema import builtin_schema
from trainmaster.runtime.jsontree import JsonObject

FieldLabels: TypeAlias = Mapping[str, Callable[[JsonObject], str]]

_PACKAGES = {
    "": "io.k8s.api.core.v1",
    "batch": "io.k8s.api.batch.v1",
    "coordination.k8s.io": "io.k8s.api.coordination.v1",
    "events.k8s.io": "io.k8s.api.events.v1",
    "scheduling.k8s.io": "io.k8s.api.scheduling.v1",
    "node.k8s.io": "io.k8s.api.node.v1",
    "resource.k8s.io": "io.k8s.api.resource.v1",
    "rbac.authorization.k8s.io": "io.k8s.api.rbac.v1",
    "admissionregistration.k8s.io": "io.k8s.api.admissionregistration.v1",
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
}


def _paths(*paths: str) -> FieldLabels:
    return {path: _value_at(path) for path in paths}


def _value_at(path: str) -> Callable[[JsonObject], str]:
    find = compile_path(f".{path}")

    def value(obj: JsonObject) -> str:
        found = find(obj)
        if not found or found[0] is None:
            return ""
        return str(found[0]).lower() if isinstance(found[0], bool) else str(found[0])

    return value


_POD_LABELS = _paths(
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_CORE_EVENT_LABELS = {
    **_paths(*(f"involvedObject.{field}" for field in _REFERENCE), "reason", "type", "reportingComponent"),
    "source": lambda obj: (obj.get("source") or {}).get("component") or obj.get("reportingComponent") or "",
}
_EVENT_LABELS = _paths(*(f"regarding.{field}" for field in _REFERENCE), "reason", "type", "reportingController")
_JOB_LABELS = {"status.successful": lambda obj: str(obj.get("status", {}).get("succeeded", 0))}


def _kind(
    group: str,
    kind: str,
    plural: str,
    *,
    strategy: Strategy | None = None,
    namespaced: bool = True,
    short: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = ALL_VERBS,
    subresources: frozenset[str] = frozenset(),
    shown: tuple[Column, ...] = printers.PLAIN,
    labels: FieldLabels | None = None,
    storage: GroupResource | None = None,
) -> Kind:
    definition = f"{_PACKAGES[group]}.{kind}"
    return Kind(
        group=group,
        version="v1",
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        list_kind=f"{kind}List",
        namespaced=namespaced,
        strategy=strategy or Strategy(),
        schema=builtin_schema(definition),
        definition=definition,
        short_names=short,
        categories=categories,
        verbs=verbs,
        subresources=subresources,
        columns=shown,
        field_labels=labels or {},
        storage=storage,
    )


_STATUS = frozenset({"status"})


def builtin_kinds(registry: Registry) -> list[Kind]:
    """Return all built-in kinds; definitions of custom resources look their names up in the registry."""
    return [*_core_kinds(), *_group_kinds(registry), *_access_kinds()]


def builtin_registry() -> Registry:
    """Return a registry that serves the built-in kinds."""
    registry = Registry()
    for kind in builtin_kinds(registry):
        registry.add(kind)
    return registry


def _core_kinds() -> list[Kind]:
    everything = ("all",)
    return [
        _kind(
            "",
            "Namespace",
            "namespaces",
            strategy=core.NamespaceStrategy(),
            namespaced=False,
            # A namespace is deleted by itself: a collection would be the cluster.
            verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
            short=("ns",),
            subresources=frozenset({"status", "finalize"}),
            shown=printers.NAMESPACES,
            labels=_paths("status.phase"),
        ),
        _kind(
            "",
            "Pod",
            "pods",
            strategy=PodStrategy(),
            short=("po",),
            categories=everything,
            subresources=frozenset({"status", "log"}),
            shown=printers.PODS,
            labels=_POD_LABELS,
        ),
        _kind("", "ConfigMap", "configmaps", strategy=ConfigMapStrategy(), short=("cm",), shown=printers.CONFIGMAPS),
        _kind("", "Secret", "secrets", strategy=SecretStrategy(), shown=printers.SECRETS, labels=_paths("type")),
        _kind(
            "",
            "Service",
            "services",
            strategy=core.ServiceStrategy(),
            short=("svc",),
            categories=everything,
            shown=printers.SERVICES,
            labels=_paths("spec.clusterIP", "spec.type"),
        ),
        _kind(
            "",
            "ServiceAccount",
            "serviceaccounts",
            strategy=core.ServiceAccountStrategy(),
            short=("sa",),
            subresources=frozenset({"token"}),
        ),
        _kind(
            "",
            "Event",
            "events",
            strategy=CoreEventStrategy(),
            short=("ev",),
            shown=printers.EVENTS,
            labels=_CORE_EVENT_LABELS,
        ),
        _kind(
            "",
            "Node",
            "nodes",
            strategy=core.NodeStrategy(),
            namespaced=False,
            short=("no",),
            subresources=_STATUS,
            shown=printers.NODES,
            labels=_paths("spec.unschedulable"),
        ),
        _kind(
            "",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            strategy=core.ClaimStrategy(),
            short=("pvc",),
            subresources=_STATUS,
            shown=printers.CLAIMS,
        ),
        _kind("", "LimitRange", "limitranges", strategy=LimitRangeStrategy(), short=("limits",)),
    ]


def _group_kinds(registry: Registry) -> list[Kind]:
    return [
        _kind(
            "batch",
            "Job",
            "jobs",
            strategy=JobStrategy(),
            categories=("all",),
            subresources=_STATUS,
            shown=printers.JOBS,
            labels=_JOB_LABELS,
        ),
        _kind("coordination.k8s.io", "Lease", "leases", strategy=core.LeaseStrategy(), shown=printers.LEASES),
        _kind(
            "events.k8s.io",
            "Event",
            "events",
            strategy=EventStrategy(),
            short=("ev",),
            shown=printers.EVENTS,
            labels=_EVENT_LABELS,
            storage=EVENTS,
        ),
        _kind(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            strategy=DefinitionStrategy(registry),
            namespaced=False,
            short=("crd", "crds"),
            categories=("api-extensions",),
            subresources=_STATUS,
            shown=printers.DEFINITIONS,
        ),
        _kind(
            "scheduling.k8s.io",
            "PriorityClass",
            "priorityclasses",
            strategy=PriorityClassStrategy(),
            namespaced=False,
            short=("pc",),
            shown=printers.PRIORITY_CLASSES,
        ),
        _kind(
            "node.k8s.io",
            "RuntimeClass",
            "runtimeclasses",
            strategy=RuntimeClassStrategy(),
            namespaced=False,
            shown=printers.RUNTIME_CLASSES,
        ),
        *_device_kinds(),
        *(
            _kind(
                "admissionregistration.k8s.io",
                name,
                resource.resource,
                strategy=WebhookConfigurationStrategy(mutating=resource == MUTATING_WEBHOOKS),
                namespaced=False,
                categories=("api-extensions",),
                shown=printers.WEBHOOK_CONFIGURATIONS,
            )
            for name, resource in (
                ("MutatingWebhookConfiguration", MUTATING_WEBHOOKS),
                ("ValidatingWebhookConfiguration", VALIDATING_WEBHOOKS),
            )
        ),
    ]


def _device_kinds() -> list[Kind]:
    group = "resource.k8s.io"
    return [
        _kind(
            group,
            "ResourceClaim",
            "resourceclaims",
            strategy=devices.ClaimStrategy(),
            subresources=_STATUS,
            shown=printers.RESOURCE_CLAIMS,
        ),
        _kind(group, "ResourceClaimTemplate", "resourceclaimtemplates", strategy=devices.ClaimTemplateStrategy()),
        _kind(group, "DeviceClass", "deviceclasses", strategy=devices.DeviceClassStrategy(), namespaced=False),
        _kind(
            group,
            "ResourceSlice",
            "resourceslices",
            strategy=devices.SliceStrategy(),
            namespaced=False,
            shown=printers.RESOURCE_SLICES,
            labels=_paths("spec.driver", "spec.nodeName"),
        ),
    ]


def _access_kinds() -> list[Kind]:
    group, strategy = "rbac.authorization.k8s.io", core.RoleStrategy()
    return [
        _kind(group, kind, plural, strategy=strategy, namespaced=namespaced)
        for kind, plural, namespaced in (
            ("Role", "roles", True),
            ("RoleBinding", "rolebindings", True),
            ("ClusterRole", "clusterroles", False),
            ("ClusterRoleBinding", "clusterrolebindings", False),
        )
    ]
