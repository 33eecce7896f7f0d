"""Unmarshal errors: values of the wrong type, in the words of the Go controller.

A defaulting webhook sees a TrainJob before the API server has checked it against the schema. The Go controller decodes
it into structures there, and so it is the one that refuses `numProcPerNode: auto`, with the text of Go's decoder. What
this table does not know is left to the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from trainmaster.runtime.jsontree import JsonObject


class _Struct(NamedTuple):
    name: str
    fields: Mapping[str, _Type]


_Type: TypeAlias = "str | tuple[_Type] | _Struct"
"""A scalar by its name in Go, a slice as a tuple of its element, or a structure."""

_ENV: Final = (_Struct("EnvVar", {"name": "string", "value": "string"}),)


def _source(name: str) -> _Struct:
    return _Struct(name, {"storageUri": "string", "env": _ENV})


_SPEC: Final = _Struct(
    "TrainJobSpec",
    {
        "runtimeRef": _Struct("RuntimeRef", {"name": "string", "apiGroup": "string", "kind": "string"}),
        "initializer": _Struct(
            "Initializer", {"dataset": _source("DatasetInitializer"), "model": _source("ModelInitializer")}
        ),
        "trainer": _Struct(
            "Trainer",
            {
                "image": "string",
                "command": ("string",),
                "args": ("string",),
                "env": _ENV,
                "numNodes": "int32",
                "numProcPerNode": "int32",
            },
        ),
        "runtimePatches": (_Struct("RuntimePatch", {"manager": "string"}),),
        "suspend": "bool",
        "activeDeadlineSeconds": "int64",
        "managedBy": "string",
    },
)
_TRAINJOB: Final = _Struct("TrainJob", {"spec": _SPEC})

_LIMITS: Final = {"int32": 2**31, "int64": 2**63}
_PACKAGES: Final = {"EnvVar": "v1"}


def unmarshal_type_error(obj: JsonObject) -> str | None:
    """Say which value of a TrainJob has the wrong type; of several the first one in alphabetical order."""
    return next(_mismatches(obj, _TRAINJOB, "TrainJob", ()), None)


def _mismatches(value: Any, wanted: _Type, holder: str, path: tuple[str, ...]) -> Iterator[str]:
    """Yield what does not fit; `holder` is the structure in which the value is."""
    if value is None:
        return
    match wanted:
        case _Struct(name, fields) if isinstance(value, dict):
            for key in sorted(value.keys() & fields.keys()):
                yield from _mismatches(value[key], fields[key], name, (*path, key))
        case (element,) if isinstance(value, list):
            for item in value:
                yield from _mismatches(item, element, holder, path)
        case str() if _fits(value, wanted):
            pass
        case _:
            field = ".".join((holder, *path))
            yield f"json: cannot unmarshal {_kind(value, wanted)} into Go struct field {field} of type {_named(wanted)}"


def _fits(value: Any, scalar: str) -> bool:
    match scalar:
        case "string":
            return isinstance(value, str)
        case "bool":
            return isinstance(value, bool)
    return isinstance(value, int) and not isinstance(value, bool) and -_LIMITS[scalar] <= value < _LIMITS[scalar]


def _kind(value: Any, wanted: _Type) -> str:
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int() | float():
            return f"number {value}" if isinstance(wanted, str) and wanted in _LIMITS else "number"
    return "array" if isinstance(value, list) else "object"


def _named(wanted: _Type) -> str:
    match wanted:
        case _Struct(name, _):
            return f"{_PACKAGES.get(name, 'v1alpha1')}.{name}"
        case (element,):
            return f"[]{_named(element)}"
    return str(wanted)
