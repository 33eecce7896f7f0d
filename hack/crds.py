"""Custom resource definitions, made from the models of the API.

- Models become structural schemas: fields by their JSON names, types, defaults, and what their `Schema` says. The
  first paragraph of the docstring of a field, or else of its class, is the description.
- Types of Kubernetes come from its OpenAPI definitions (`kubernetes_schemas`). A structural schema has no references
  and no alternatives of type; what the API server knows beyond that (defaults, quantities) is added.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel

import generator
import kubernetes_schemas
from trainmaster.plugins.jobs.jaxjob import JAXJob
from trainmaster.plugins.jobs.mpijob import MPIJob, MPIJobSpec
from trainmaster.plugins.jobs.paddlejob import PaddleJob, PaddleJobSpec
from trainmaster.plugins.jobs.pytorchjob import PyTorchJob, PyTorchJobSpec
from trainmaster.plugins.jobs.tfjob import TFJob, TFJobSpec
from trainmaster.plugins.jobs.xgboostjob import XGBoostJob
from trainmaster.runtime.api import meta
from trainmaster.runtime.api.jobset import JobSetSpec
from trainmaster.runtime.api.runtimepatch import RuntimePatchSpec
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.status import JobStatus
from trainmaster.runtime.jobs.types import Replicas, RunPolicy

Schema: TypeAlias = dict[str, Any]

KUBERNETES_VERSION: Final = kubernetes_schemas.RELEASE.removeprefix("v").removesuffix(".0")
"""Whose pod fields the definitions know."""

CORE: Final = "io.k8s.api.core.v1"
OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"

_STRING: Final = {"type": "string"}
_STRINGS: Final = {"type": "object", "additionalProperties": _STRING}
_INT_OR_STRING: Final = {"anyOf": [{"type": "integer"}, _STRING], "x-kubernetes-int-or-string": True}
_SCALARS: Final = {bool: {"type": "boolean"}, int: {"type": "integer", "format": "int32"}, str: _STRING}

_LEAVES: Final[dict[str, Schema]] = {
    QUANTITY: {
        **_INT_OR_STRING,
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    },
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _INT_OR_STRING,
    OBJECT_META: {
        "type": "object",
        "properties": {
            "name": _STRING,
            "namespace": _STRING,
            "labels": _STRINGS,
            "annotations": _STRINGS,
            "finalizers": {"type": "array", "items": _STRING},
        },
    },
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
"""Defaults of core/v1 that are part of its types (by definition and field); the published definitions lack them."""

_KEPT: Final = ("type", "format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")
_PREFIXED: Final = {
    "list_type": "x-kubernetes-list-type",
    "keys": "x-kubernetes-list-map-keys",
    "preserve_unknown_fields": "x-kubernetes-preserve-unknown-fields",
}
_MODELS: Final = {"JobSetSpec": JobSetSpec, "RuntimePatchSpec": RuntimePatchSpec}
_MACHINERY: Final = {"api": "io.k8s.apimachinery.pkg.api", "meta": "io.k8s.apimachinery.pkg.apis.meta"}
"""Packages that are not below `io.k8s.api`."""

_STATE: Final = ("State", ".status.conditions[-1:].type")
"""The last condition, whatever its status: the controller puts the one last that tells the state."""


@cache
def published() -> Mapping[str, Schema]:
    """Return the published definitions of Kubernetes that ours lead to, and others, by name."""
    return kubernetes_schemas.load("io.k8s.api.batch.v1.JobTemplateSpec", f"{CORE}.PersistentVolumeClaim")


@cache
def of_kubernetes(name: str) -> Schema:
    """Return the structural schema of a type of Kubernetes; shared, never to be changed."""
    if name in _LEAVES:
        return _LEAVES[name]
    node = _structural(published()[name])
    for (owner, field), default in _DEFAULTS.items():
        if name == f"{CORE}.{owner}":
            node["properties"][field] = {**node["properties"][field], "default": default}
    return node


def _structural(node: Schema) -> Schema:
    if "$ref" in node:
        return of_kubernetes(node["$ref"])
    result: Schema = {keyword: node[keyword] for keyword in _KEPT if keyword in node}
    if "properties" in node:
        result["properties"] = {name: _structural(child) for name, child in node["properties"].items()}
    if node.get("required"):
        result["required"] = sorted(node["required"])
    for below in ("items", "additionalProperties"):
        if isinstance(node.get(below), dict):
            result[below] = _structural(node[below])
    return result


@cache
def of_model(model: type[BaseModel]) -> Schema:
    """Return the structural schema of a model; shared, never to be changed."""
    if model is meta.ObjectMeta:
        return of_kubernetes(OBJECT_META)
    properties: dict[str, Schema] = {}
    required = []
    texts: dict[str, str] = {}
    for each in reversed(model.__mro__):
        texts |= generator.field_docstrings(each) if issubclass(each, meta.ApiModel) else {}
    for name, field in model.model_fields.items():
        said = [each for each in field.metadata if isinstance(each, meta.Schema)]
        node = {**_of_type(field.annotation, ()), **_described(texts[name])}
        must = next((each.required for each in said if each.required is not None), field.is_required())
        if isinstance(field.default, bool | int | str) and field.default != "" and not must:
            node["default"] = field.default
        json_name = field.alias or name
        properties[json_name] = _said(node, said)
        required += [json_name] if must else []
    node = {"type": "object", **_described(vars(model).get("__doc__")), "properties": properties}
    node |= {"required": sorted(required)} if required else {}
    own = vars(model).get("__schema__")
    return _said(node, [own] if own else [])


def _described(docstring: str | None) -> Schema:
    paragraph, _, _ = inspect.cleandoc(docstring or "").partition("\n\n")
    return {"description": " ".join(paragraph.split())} if paragraph else {}


def _of_type(annotation: Any, metadata: Iterable[Any]) -> Schema:
    origin, arguments = get_origin(annotation), get_args(annotation)
    said = [each for each in metadata if isinstance(each, meta.Schema)]
    if said:
        return _said(_of_type(annotation, ()), said)
    if origin is Annotated:
        return _of_type(arguments[0], arguments[1:])
    if origin in {Union, UnionType}:
        kinds = [each for each in arguments if each is not NoneType]
        return _of_type(kinds[0], ()) if len(kinds) == 1 else _INT_OR_STRING
    if origin is list:
        return {"type": "array", "items": _of_type(arguments[0], ())}
    if origin is dict and arguments[1] is not Any:
        return {"type": "object", "additionalProperties": _of_type(arguments[1], ())}
    if origin is dict or annotation is Any:
        return {"type": "object"}
    if origin is Literal:
        return _STRING
    return of_model(annotation) if issubclass(annotation, BaseModel) else _SCALARS[annotation]


def _said(node: Schema, said: Iterable[meta.Schema]) -> Schema:
    """Return a schema with what annotations say of it."""
    for each in said:
        if each.ref:
            node = {**_referenced(each.ref), **({"description": node["description"]} if "description" in node else {})}
        node = node | {_PREFIXED.get(name, name): value for name, value in each.keywords.items()}
        if "keys" in each.keywords:
            node["x-kubernetes-list-type"] = "map"
        if each.rules:
            rules = [{"rule": expression, "message": message} for expression, message in each.rules]
            node["x-kubernetes-validations"] = [*node.get("x-kubernetes-validations", ()), *rules]
        for name, text in each.descriptions.items():
            node["properties"] = {**node["properties"], name: {**node["properties"][name], "description": text}}
    return {name: value for name, value in node.items() if value is not None and value != {}}


def _referenced(ref: str) -> Schema:
    """Return the schema of a type of Kubernetes, or of a field of it, or of a model, by the name in a `Schema`."""
    if ref in _MODELS:
        return of_model(_MODELS[ref])
    package, version, name, *path = ref.split(".")
    package = _MACHINERY.get(package, f"io.k8s.api.{package}")
    node = of_kubernetes(f"{package}.{version}.{name}")
    for step in path:
        node = node["properties"][step]
    return node


def of_kind(model: Any) -> Schema:
    """Return the definition of a kind that has a model."""
    return _custom_resource(model.__name__, model.__definition__, of_model(model))


def _of_job(kind: type[JobKind], replica_types: str, model: type[BaseModel] | None = None) -> Schema:
    """Return the definition of a kind of the Training Operator; `model` is of what only its spec has."""
    replicas = kind.replica_specs_field
    spec = {
        "type": "object",
        "description": "What to train, in which pods.",
        "properties": {
            replicas: {
                "type": "object",
                "description": f"The pods, by replica type: {replica_types}",
                "additionalProperties": of_model(Replicas),
            },
            "runPolicy": of_model(RunPolicy),
            **(of_model(model)["properties"] if model else {}),
        },
        "required": [replicas],
    }
    root = {
        "type": "object",
        "description": f"A training job of the Training Operator ({kind.kind}).",
        "properties": {"spec": spec, "status": of_model(JobStatus)},
    }
    columns = (meta.AGE, _STATE) if kind is MPIJob else (_STATE, meta.AGE)
    status = f".status.replicaStatuses.{kind.scale_type}"
    scale = (f".spec.{replicas}.{kind.scale_type}.replicas", f"{status}.active", f"{status}.selector")
    frame = meta.Definition(kind.group, kind.version, columns=columns, scale=scale if kind.scale_type else None)
    return _custom_resource(kind.kind, frame, root)


def of_jobs() -> list[Schema]:
    """Return the definitions of the six kinds of the Training Operator."""
    return [
        _of_job(JAXJob, "Worker."),
        _of_job(MPIJob, "Launcher and Worker.", MPIJobSpec),
        _of_job(PaddleJob, "Master and Worker.", PaddleJobSpec),
        _of_job(PyTorchJob, "Master and Worker.", PyTorchJobSpec),
        _of_job(TFJob, "Chief or Master, Worker, PS and Evaluator.", TFJobSpec),
        _of_job(XGBoostJob, "Master and Worker."),
    ]


def _custom_resource(kind: str, frame: meta.Definition, root: Schema) -> Schema:
    """Return a definition with one version; a `status` is a subresource."""
    plural = f"{kind.lower()}s"
    properties = {name: node for name, node in root["properties"].items() if name in {"spec", "status"}}
    common = {
        "apiVersion": {**_STRING, "description": "Group and version of this object's schema."},
        "kind": {**_STRING, "description": "Type of this object."},
        "metadata": {"type": "object"},
    }
    served: Schema = {
        "name": frame.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {**root, "properties": {**common, **properties}}},
    }
    if frame.columns:
        served["additionalPrinterColumns"] = [
            {"name": name, "type": "date" if (name, path) == meta.AGE else "string", "jsonPath": path}
            for name, path in frame.columns
        ]
    if "status" in properties:
        served["subresources"] = {"status": {}}
    if frame.scale:
        paths = zip(("specReplicasPath", "statusReplicasPath", "labelSelectorPath"), frame.scale, strict=True)
        served["subresources"]["scale"] = dict(paths)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{frame.group}"},
        "spec": {
            "group": frame.group,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced" if frame.namespaced else "Cluster",
            "versions": [served],
        },
    }
