"""OpenAPI definitions of the built-in kinds, from the generated `definitions.json`, read at first use."""

from __future__ import annotations

import functools
from importlib import resources

import orjson

from trainmaster.devcluster.apiserver.schema.schema import Schema
from trainmaster.runtime.jsontree import JsonObject


@functools.cache
def builtin_schema(definition_name: str) -> Schema:
    """Give the schema of a built-in type (`io.k8s.api.core.v1.Pod`); raises `ValueError` where there is none."""
    return Schema.compile({"$ref": definition_name}, _definitions())


@functools.cache
def _definitions() -> dict[str, JsonObject]:
    file = resources.files(__package__).joinpath("definitions.json")
    loaded: dict[str, JsonObject] = orjson.loads(file.read_bytes())
    return loaded
