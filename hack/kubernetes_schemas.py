"""The published OpenAPI definitions of Kubernetes, as the generators beside this file need them.

Source: the package kubernetes-validate, which carries the definitions of every release in the form of JSON schemas.
That form differs from OpenAPI in a few ways; `load` undoes them, so that nothing else has to know the source:
- optional fields are `"type": [T, "null"]` there, plainly T in OpenAPI;
- `apiVersion` and `kind` carry an invented `enum`;
- references point into a file; here `$ref` is just the name of a definition;
- IntOrString is a `oneOf`; here it has `x-kubernetes-int-or-string`;
- types that hold any JSON say nothing; here they have `x-kubernetes-preserve-unknown-fields`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

RELEASE = "v1.37.0"
"""The Kubernetes release whose fields the controller knows. Raise it, run the generators, read the difference."""

KINDS = (
    "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration",
    "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration",
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.apps.v1.ReplicaSet",
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.Endpoints",
    "io.k8s.api.core.v1.Event",
    "io.k8s.api.core.v1.LimitRange",
    "io.k8s.api.core.v1.Namespace",
    "io.k8s.api.core.v1.Node",
    "io.k8s.api.core.v1.PersistentVolumeClaim",
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.ResourceQuota",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.core.v1.Service",
    "io.k8s.api.core.v1.ServiceAccount",
    "io.k8s.api.discovery.v1.EndpointSlice",
    "io.k8s.api.events.v1.Event",
    "io.k8s.api.networking.v1.NetworkPolicy",
    "io.k8s.api.node.v1.RuntimeClass",
    "io.k8s.api.policy.v1.PodDisruptionBudget",
    "io.k8s.api.rbac.v1.ClusterRole",
    "io.k8s.api.rbac.v1.ClusterRoleBinding",
    "io.k8s.api.rbac.v1.Role",
    "io.k8s.api.rbac.v1.RoleBinding",
    "io.k8s.api.resource.v1.DeviceClass",
    "io.k8s.api.resource.v1.ResourceClaim",
    "io.k8s.api.resource.v1.ResourceClaimTemplate",
    "io.k8s.api.resource.v1.ResourceSlice",
    "io.k8s.api.scheduling.v1.PriorityClass",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
)
"""The built-in kinds that the embedded cluster serves."""

ALPHA = ("io.k8s.api.scheduling.v1alpha2.PodGroup", "io.k8s.api.scheduling.v1alpha2.Workload")
"""Kinds that only the release of the embedded cluster has."""

# The published definitions leave out defaults. These two are part of a list's key: without them server-side apply takes
# the ports `53` and `53/TCP` for two.
_DEFAULTS = {
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
}

_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_ANY_JSON = frozenset(
    {
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
    }
)

Node = dict[str, Any]


def load(*more: str, release: str = RELEASE) -> dict[str, Node]:
    """Read the definitions that KINDS and `more` reach, by name, in OpenAPI's form and without descriptions."""
    source = _release_directory(release) / "_definitions.json"
    published = json.loads(source.read_text(encoding="utf-8"))["$defs"]
    definitions: dict[str, Node] = {}
    waiting = [*KINDS, *more]
    while waiting:
        name = waiting.pop()
        if name not in definitions:
            definitions[name] = _definition(name, published[name])
            waiting.extend(_references(definitions[name]))
    for (name, field), default in _DEFAULTS.items():
        definitions[name]["properties"][field]["default"] = default
    return definitions


def one_per_line(entries: dict[str, Any], *, indent: str = "") -> str:
    """Print a JSON object with one compact entry a line, sorted, so that a change of one entry changes one line."""
    lines = (f"{indent}{json.dumps(key)}: {_compact(value)}" for key, value in sorted(entries.items()))
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _release_directory(release: str) -> Path:
    package = find_spec("kubernetes_validate")
    if package is None or package.origin is None:
        sys.exit("kubernetes-validate is not installed: pip install --group generate")
    schemas = Path(package.origin).parent / "kubernetes-json-schema"
    directory = schemas / f"{release}-local"
    if not directory.is_dir():
        present = ", ".join(sorted(path.name.removesuffix("-local") for path in schemas.glob("v*-local")))
        sys.exit(f"kubernetes-validate has no schemas of {release}, only of {present}: change that or upgrade it")
    return directory


def _definition(name: str, published: Node) -> Node:
    if name == _INT_OR_STRING:
        return {"x-kubernetes-int-or-string": True}
    node = _node(published)
    if name in _ANY_JSON:
        node["x-kubernetes-preserve-unknown-fields"] = True
    if "x-kubernetes-group-version-kind" in node:
        for field in ("apiVersion", "kind"):
            node["properties"][field].pop("enum", None)
    return node


def _node(published: Node) -> Node:
    node: Node = {}
    for key, value in published.items():
        match key:
            case "description":
                pass
            case "type":
                node[key] = _type(value)
            case "$ref":
                node[key] = value.rpartition("/")[2]
            case "properties":
                node[key] = {field: _node(schema) for field, schema in value.items()}
            case "items" | "additionalProperties" if isinstance(value, dict):
                node[key] = _node(value)
            case "oneOf":
                node[key] = [_node(schema) for schema in value]
            case _:
                node[key] = value
    return node


def _type(published: str | list[str]) -> str:
    if isinstance(published, str):
        return published
    (name,) = (name for name in published if name != "null")
    return name


def _references(node: Node) -> Iterable[str]:
    if isinstance(reference := node.get("$ref"), str):
        yield reference
    for schema in node.get("properties", {}).values():
        yield from _references(schema)
    for key in ("items", "additionalProperties"):
        if isinstance(schema := node.get(key), dict):
            yield from _references(schema)
