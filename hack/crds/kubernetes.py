"""Kubernetes' own types (pod templates, claims, metadata) as structural schemas.

They come from the OpenAPI definitions that the package kubernetes-validate carries. A structural schema has no
references, no null and no alternatives of type; what the API server knows beyond that (defaults, quantities) is added.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubernetes_validate

from crds import schema
from crds.schema import Schema

KUBERNETES_VERSION: Final = "1.37"
"""Whose pod fields the CRDs know; raising it is a decision, so that another installed package changes nothing."""

CORE: Final = "io.k8s.api.core.v1"
BATCH: Final = "io.k8s.api.batch.v1"
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"

_QUANTITY_PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_INT_OR_STRING: Final = schema.integer_or_string()

_LEAVES: Final[dict[str, Schema]] = {
    QUANTITY: {**_INT_OR_STRING, "pattern": _QUANTITY_PATTERN},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _INT_OR_STRING,
    f"{META}.ObjectMeta": schema.obj(
        {
            "name": schema.string(),
            "namespace": schema.string(),
            "labels": schema.mapping(schema.string()),
            "annotations": schema.mapping(schema.string()),
            "finalizers": schema.plain_list(schema.string()),
        }
    ),
}
"""Types that OpenAPI does not describe as the API server treats them; of embedded metadata only this much is kept."""

_DEFAULTS: Final[dict[tuple[str, str], Any]] = {
    ("AzureDiskVolumeSource", "fsType"): "ext4",
    ("AzureDiskVolumeSource", "readOnly"): False,
    ("ConfigMapEnvSource", "name"): "",
    ("ConfigMapKeySelector", "name"): "",
    ("ConfigMapProjection", "name"): "",
    ("ConfigMapVolumeSource", "name"): "",
    ("ContainerPort", "protocol"): "TCP",
    ("FileKeySelector", "optional"): False,
    ("GRPCAction", "service"): "",
    ("ISCSIVolumeSource", "iscsiInterface"): "default",
    ("LocalObjectReference", "name"): "",
    ("RBDVolumeSource", "keyring"): "/etc/ceph/keyring",
    ("RBDVolumeSource", "pool"): "rbd",
    ("RBDVolumeSource", "user"): "admin",
    ("ScaleIOVolumeSource", "fsType"): "xfs",
    ("ScaleIOVolumeSource", "storageMode"): "ThinProvisioned",
    ("SecretEnvSource", "name"): "",
    ("SecretKeySelector", "name"): "",
    ("SecretProjection", "name"): "",
}
"""Defaults of core/v1 that are part of its types (by definition and field); JSON schemas do not carry them."""

_KEPT: Final = ("format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")


@cache
def definition(definition_name: str) -> Schema:
    """Return the structural schema of a Kubernetes type; shared, never to be changed."""
    if definition_name in _LEAVES:
        return _LEAVES[definition_name]
    node = _structural(_definitions()[definition_name])
    for (owner, field), default in _DEFAULTS.items():
        if definition_name == f"{CORE}.{owner}":
            node["properties"][field] = {**node["properties"][field], "default": default}
    return node


def field(definition_name: str, *path: str) -> Schema:
    """Return the schema of a field inside a Kubernetes type."""
    node = definition(definition_name)
    for step in path:
        node = node["properties"][step]
    return node


def definition_names() -> list[str]:
    """Return the names of all types of Kubernetes that have fields."""
    return sorted(name for name, node in _definitions().items() if node.get("properties"))


@cache
def _definitions() -> dict[str, Any]:
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{KUBERNETES_VERSION}.0-local"
    try:
        text = (folder / "_definitions.json").read_bytes()
    except FileNotFoundError as error:
        raise SystemExit(
            f"kubernetes-validate has no schemas of Kubernetes {KUBERNETES_VERSION} (looked in {folder}); "
            "install a newer one: pip install --upgrade kubernetes-validate"
        ) from error
    definitions: dict[str, Any] = json.loads(text)["$defs"]
    return definitions


def _structural(node: dict[str, Any]) -> Schema:
    if "$ref" in node:
        return definition(node["$ref"].rpartition("/")[2])
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    [kind] = [kind for kind in kinds if kind != "null"]
    result: Schema = {"type": kind, **{keyword: node[keyword] for keyword in _KEPT if keyword in node}}
    if "properties" in node:
        result["properties"] = {name: _structural(child) for name, child in node["properties"].items()}
    if node.get("required"):
        result["required"] = sorted(node["required"])
    if "items" in node:
        result["items"] = _structural(node["items"])
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _structural(node["additionalProperties"])
    return result
