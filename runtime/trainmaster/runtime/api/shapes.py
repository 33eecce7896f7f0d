"""JSON trees whose skeleton is checked: the parts of an object that are merged and passed on, but hardly read.

For Python they are plain JSON objects. What is checked is only what a reader steps through on its way: that a list is a
list, that an element which Kubernetes keys by name has one. The rest is left as it came, for the API server to judge.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, GetPydanticSchema
from pydantic_core import core_schema
from typing_extensions import TypedDict  # pydantic cannot use the one of `typing` before Python 3.12

from trainmaster.runtime.api.meta import NullIsDefault, Schema
from trainmaster.runtime.jsontree import JsonObject


class _Shape(TypedDict):
    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]  # how pydantic configures a TypedDict


def _shaped_like(shape: Any) -> GetPydanticSchema:
    """Return the annotation that validates a JSON object like a TypedDict."""
    return GetPydanticSchema(lambda _, handler: handler.generate_schema(shape))


_Quantity: TypeAlias = Annotated[
    int | float | str,
    GetPydanticSchema(
        lambda source, handler: core_schema.custom_error_schema(
            handler(source), custom_error_type="quantity_type", custom_error_message="not a quantity"
        )
    ),
]


ProcessCount: TypeAlias = Annotated[
    int | Literal["auto", "cpu", "gpu"],
    GetPydanticSchema(
        lambda source, handler: core_schema.custom_error_schema(
            handler(source), custom_error_type="process_count_type", custom_error_message="not a process count"
        )
    ),
]
"""Processes on each node: a number, or what torchrun is to count."""


class _Named(_Shape):
    name: str


class _Metadata(_Shape, total=False):
    name: str
    labels: dict[str, str]
    annotations: dict[str, str]


class _ContainerResources(_Shape, total=False):
    claims: list[_Named]


class _Container(_Named, total=False):
    resources: _ContainerResources


class _PodSpec(_Shape, total=False):
    containers: list[_Container]
    initContainers: list[_Container]
    resourceClaims: list[_Named]
    volumes: list[_Named]


class _PodTemplate(_Shape, total=False):
    metadata: _Metadata
    spec: _PodSpec


class _JobSpec(_Shape, total=False):
    template: _PodTemplate


class _JobTemplate(_Shape, total=False):
    metadata: _Metadata
    spec: _JobSpec


class _ReplicatedJob(_Named, total=False):
    replicas: int
    template: _JobTemplate


class _JobSetSpec(_Shape, total=False):
    replicatedJobs: list[_ReplicatedJob]


class _JobSetTemplate(_Shape, total=False):
    metadata: _Metadata
    spec: _JobSetSpec


class _RuntimePatchSpec(_Shape, total=False):
    template: _JobSetTemplate


class _Resources(_Shape, total=False):
    limits: dict[str, _Quantity]
    requests: dict[str, _Quantity]
    claims: list[_Named]


NamedObjects: TypeAlias = Annotated[
    list[Annotated[JsonObject, _shaped_like(_Named), Schema(ref="core.v1.EnvVar")]],
    NullIsDefault,
    Schema(keys=["name"], maxItems=128),
]
"""Environment variables, which Kubernetes keys by name."""

Resources: TypeAlias = Annotated[JsonObject, _shaped_like(_Resources), Schema(ref="core.v1.ResourceRequirements")]
"""ResourceRequirements of a container: `limits` and `requests` map resource names to quantities."""

PodTemplate: TypeAlias = Annotated[JsonObject, _shaped_like(_PodTemplate), NullIsDefault]
"""A PodTemplateSpec (core/v1)."""

JobSetSpec: TypeAlias = Annotated[JsonObject, _shaped_like(_JobSetSpec), Schema(ref="JobSetSpec")]
"""Spec of a JobSet (JobSet API v1alpha2)."""

RuntimePatchSpec: TypeAlias = Annotated[JsonObject, _shaped_like(_RuntimePatchSpec), Schema(ref="RuntimePatchSpec")]
"""The part of a runtime that a TrainJob may patch: template, a partial JobSet."""
