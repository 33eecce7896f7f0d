"""How a kind of the server's own is described, in the module of that kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.jsonpath import compile_path
from trainmaster.devcluster.apiserver.registry.registry import ALL_VERBS, Column, Kind
from trainmaster.devcluster.apiserver.registry.scale import ScalePaths
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.schema import builtin_schema
from trainmaster.runtime.jsontree import JsonObject

FieldLabels: TypeAlias = Mapping[str, Callable[[JsonObject], str]]
"""What field selectors may ask for, and how it is read from an object."""

_PACKAGES = {
    "": "io.k8s.api.core.v1",
    "apps": "io.k8s.api.apps.v1",
    "autoscaling": "io.k8s.api.autoscaling.v2",
    "batch": "io.k8s.api.batch.v1",
    "coordination.k8s.io": "io.k8s.api.coordination.v1",
    "discovery.k8s.io": "io.k8s.api.discovery.v1",
    "events.k8s.io": "io.k8s.api.events.v1",
    "scheduling.k8s.io": "io.k8s.api.scheduling.v1",
    "networking.k8s.io": "io.k8s.api.networking.v1",
    "node.k8s.io": "io.k8s.api.node.v1",
    "policy": "io.k8s.api.policy.v1",
    "resource.k8s.io": "io.k8s.api.resource.v1",
    "rbac.authorization.k8s.io": "io.k8s.api.rbac.v1",
    "admissionregistration.k8s.io": "io.k8s.api.admissionregistration.v1",
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
}


def builtin_kind(
    group: str,
    kind: str,
    plural: str,
    *,
    version: str | None = None,
    strategy: Strategy,
    namespaced: bool = True,
    short_names: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = ALL_VERBS,
    subresources: Iterable[str] = (),
    columns: tuple[Column, ...] = printers.PLAIN,
    field_labels: FieldLabels | None = None,
    storage: GroupResource | None = None,
    scale: ScalePaths | None = None,
) -> Kind:
    """Return a kind in a version of its group, by default the stable one, with the schema of its OpenAPI definition."""
    package, _, stable = _PACKAGES[group].rpartition(".")
    definition = f"{package}.{version or stable}.{kind}"
    return Kind(
        group=group,
        version=version or stable,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        list_kind=f"{kind}List",
        namespaced=namespaced,
        strategy=strategy,
        schema=builtin_schema(definition),
        definition=definition,
        short_names=short_names,
        categories=categories,
        verbs=verbs,
        subresources=frozenset(subresources),
        columns=columns,
        field_labels=field_labels or {},
        storage=storage,
        scale=scale,
    )


def field_label(path: str) -> Callable[[JsonObject], str]:
    """Return how the text that a field selector compares is read from an object; `path` is like `spec.nodeName`."""
    find = compile_path(path)

    def value(obj: JsonObject) -> str:
        found = find(obj)
        if not found or found[0] is None:
            return ""
        return str(found[0]).lower() if isinstance(found[0], bool) else str(found[0])

    return value


def field_labels(*paths: str) -> FieldLabels:
    """Return the field labels of these paths."""
    return {path: field_label(path) for path in paths}
