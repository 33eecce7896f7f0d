"""Discovery: what the server serves, in the aggregated form of kubectl and in the older one document per group version.

Guarantees:
- documents follow the registry: a custom resource is discoverable with the request after the one that established it;
- versions stand in the order of preference: stable before beta before alpha, newer before older;
- an ETag lets clients keep their copy as long as nothing changed.

Virtual kinds (reviews) are part of the documents although nothing of them is stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainmaster.devcluster.apiserver.registry import Kind, Registry
from trainmaster.runtime.jsontree import JsonObject

_STATUS_VERBS = ("get", "patch", "update")
_SUBRESOURCE_VERBS: Mapping[str, tuple[str, ...]] = {
    "status": _STATUS_VERBS,
    "log": ("get",),
    "exec": ("create", "get"),
    "finalize": ("update",),
    "token": ("create",),
    "binding": ("create",),
    "eviction": ("create",),
    "proxy": ("create", "delete", "get", "patch", "update"),
}
_SUBRESOURCE_KINDS: Mapping[str, JsonObject] = {
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    "token": {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"},
    "binding": {"kind": "Binding"},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction"},
    "pods/exec": {"kind": "PodExecOptions"},
    "pods/proxy": {"kind": "PodProxyOptions"},
    "services/proxy": {"kind": "ServiceProxyOptions"},
}
"""The kinds of subresources that are not of the kind of their resource, of any resource or of one."""


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One resource as discovery describes it."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: Sequence[str]
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    subresources: Sequence[str] = ()

    @property
    def group_version(self) -> str:
        """The group and version as in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version


class Discovery:
    """Builds discovery documents from the registry and the virtual kinds; keeps them until the registry changes."""

    def __init__(self, registry: Registry, *, virtual: Iterable[ApiResource] = ()) -> None:
        self._registry = registry
        self._virtual = tuple(virtual)
        self._revision = -1
        self._groups: dict[str, dict[str, list[ApiResource]]] = {}

    def groups(self) -> Mapping[str, Mapping[str, Sequence[ApiResource]]]:
        """Return the served resources by group and version; the core group is the empty string."""
        if self._revision != self._registry.revision:
            self._groups = _grouped([*map(_served, self._registry.kinds()), *self._virtual])
            self._revision = self._registry.revision
        return self._groups

    def aggregated(self, *, core: bool, version: str) -> JsonObject:
        """Build the aggregated document of `/api` or `/apis`."""
        items = [
            {"metadata": {"name": group} if group else {}, "versions": list(map(_aggregated_version, versions.items()))}
            for group, versions in self.groups().items()
            if (group == "") == core
        ]
        api_version = f"apidiscovery.k8s.io/{version}"
        return {"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items}

    def core_versions(self, *, address: str) -> JsonObject:
        """Build the older document of `/api`."""
        return {
            "kind": "APIVersions",
            "versions": list(self.groups().get("", {})),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        }

    def group_list(self) -> JsonObject:
        """Build the older document of `/apis`."""
        groups = [_group(group, list(versions)) for group, versions in self.groups().items() if group]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def group(self, name: str) -> JsonObject | None:
        """Build the document of one group; None when it is not served."""
        versions = self.groups().get(name) if name else None
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, list(versions))} if versions else None

    def resource_list(self, group: str, version: str) -> JsonObject | None:
        """Build the older list of resources of one group version; None when it is not served."""
        resources = self.groups().get(group, {}).get(version)
        if not resources:
            return None
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": resources[0].group_version,
            "resources": [entry for resource in resources for entry in _legacy_entries(resource)],
        }


_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STABILITY = {None: 0, "beta": 1, "alpha": 2}


def version_order(version: str) -> tuple[int, int, int, str]:
    """Return the sort key of a version: stable first, then the newest; anything else last, by name."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (3, 0, 0, version)
    major, stability, minor = match.groups()
    return (_STABILITY[stability], -int(major), -int(minor or 0), version)


def _served(kind: Kind) -> ApiResource:
    return ApiResource(
        group=kind.group,
        version=kind.version,
        kind=kind.kind,
        plural=kind.plural,
        singular=kind.singular,
        namespaced=kind.namespaced,
        verbs=kind.verbs,
        short_names=kind.short_names,
        categories=kind.categories,
        subresources=sorted(kind.subresources),
    )


def _grouped(resources: Iterable[ApiResource]) -> dict[str, dict[str, list[ApiResource]]]:
    groups: dict[str, dict[str, list[ApiResource]]] = {}
    for resource in resources:
        groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    return {
        group: {
            version: sorted(versions[version], key=lambda each: each.plural)
            for version in sorted(versions, key=version_order)
        }
        for group, versions in groups.items()
    }


def _aggregated_version(version: tuple[str, Sequence[ApiResource]]) -> JsonObject:
    name, resources = version
    return {"version": name, "freshness": "Current", "resources": list(map(_aggregated_entry, resources))}


def _aggregated_entry(resource: ApiResource) -> JsonObject:
    response_kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    entry: JsonObject = {
        "resource": resource.plural,
        "responseKind": response_kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": each,
                "responseKind": _subresource_kind(resource, each) or response_kind,
                "verbs": list(_subresource_verbs(each)),
            }
            for each in resource.subresources
        ]
    return entry


def _legacy_entries(resource: ApiResource) -> list[JsonObject]:
    entry: JsonObject = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return [
        entry,
        *(
            {
                "name": f"{resource.plural}/{subresource}",
                "singularName": "",
                "namespaced": resource.namespaced,
                **(_subresource_kind(resource, subresource) or {"kind": resource.kind}),
                "verbs": list(_subresource_verbs(subresource)),
            }
            for subresource in resource.subresources
        ),
    ]


def _subresource_kind(resource: ApiResource, subresource: str) -> JsonObject | None:
    of_one = _SUBRESOURCE_KINDS.get(f"{resource.plural}/{subresource}")
    return of_one if of_one is not None else _SUBRESOURCE_KINDS.get(subresource)


def _subresource_verbs(subresource: str) -> tuple[str, ...]:
    return _SUBRESOURCE_VERBS.get(subresource, _STATUS_VERBS)


def _group(name: str, versions: Sequence[str]) -> JsonObject:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}
