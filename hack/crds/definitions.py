"""The frame of a custom resource definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crds import schema
from crds.schema import Schema


def column(name: str, path: str, kind: str = "string") -> dict[str, Any]:
    """Return a column of `kubectl get`."""
    return {"name": name, "type": kind, "jsonPath": path}


AGE = column("Age", ".metadata.creationTimestamp", "date")


def custom_resource(
    *,
    group: str,
    version: str,
    kind: str,
    description: str,
    properties: Mapping[str, Schema],
    namespaced: bool = True,
    columns: Sequence[dict[str, Any]] = (),
    required: Sequence[str] = (),
    rules: Sequence[Schema] = (),
    scale: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a definition with one version; a `status` among the properties makes it a subresource.

    `scale` has the paths by which `kubectl scale` and autoscalers read and write the number of replicas.
    """
    plural = f"{kind.lower()}s"
    root = {
        "apiVersion": schema.string("Group and version of this object's schema."),
        "kind": schema.string("Type of this object."),
        "metadata": schema.obj(),
        **properties,
    }
    served: dict[str, Any] = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema.obj(root, description, required=required, rules=rules)},
    }
    if columns:
        served["additionalPrinterColumns"] = list(columns)
    if "status" in properties:
        served["subresources"] = {"status": {}}
    if scale is not None:
        served.setdefault("subresources", {})["scale"] = dict(scale)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [served],
        },
    }


def conditions(description: str, *, max_items: int | None = None) -> Schema:
    """Return a list of conditions (meta/v1 Condition) with the limits that Kubernetes' conventions give them."""
    condition = schema.obj(
        {
            "type": schema.string(
                "What the condition is about, for instance Failed.",
                length=(0, 316),
                pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            ),
            "status": schema.string("Whether it holds.", enum=("True", "False", "Unknown")),
            "reason": schema.string(
                "Why, as a word for programs.",
                length=(1, 1024),
                pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            ),
            "message": schema.string("Why, as a sentence for people.", length=(0, 32768)),
            "lastTransitionTime": schema.time("When status last changed."),
            "observedGeneration": schema.integer(
                "The metadata.generation that this is about.", minimum=0, format="int64"
            ),
        },
        "One aspect of the object's state.",
        required=("type", "status", "reason", "message", "lastTransitionTime"),
    )
    return schema.map_list(condition, description, key="type", max_items=max_items)
