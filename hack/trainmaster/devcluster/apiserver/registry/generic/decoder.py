"""The decoder: from what a client sent to a private, pruned copy in the shape of the kind.

Types that do not fit a built-in kind are refused here, as Go's decoder does, so that the code of strategies can rely on
them. Custom resources are checked after defaulting, with field errors. The caller's tree is never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError, StatusError
from trainmaster.devcluster.apiserver.registry.options import WriteOptions
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.schema import Schema, builtin_schema
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_REPEATED_OWNERS = (
    "metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject "
    "such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
)
_JSON_TYPES = frozenset({"array", "boolean", "float64", "integer", "null", "number", "object", "string"})


class DecodingError(StatusError):
    """What was sent is not an object of the kind; `text` says why.

    `unknown` names the fields that the kind does not know, `misfits` has the values of another JSON type.
    """

    def __init__(
        self, kind: Kind, text: str, unknown: Sequence[str] = (), *, misfits: Sequence[FieldError] = ()
    ) -> None:
        message = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {text}'
        super().__init__(400, "BadRequest", message)
        self.text = text
        self.unknown = unknown
        self.misfits = misfits


def decode(kind: Kind, obj: Any, *, namespace: str | None, options: WriteOptions) -> JsonObject:
    """Return a private copy of a whole object, with kind, metadata and namespace in place."""
    if not isinstance(obj, dict):
        raise errors.bad_request(f"the body of the request must be an object, not {_json_type(obj)}")
    return with_namespace(kind, decode_parts(kind, obj, options=options), namespace=namespace, options=options)


def with_namespace(kind: Kind, private: JsonObject, *, namespace: str | None, options: WriteOptions) -> JsonObject:
    """Put the namespace of the request into a whole object that was decoded, and drop owners that are named twice."""
    metadata = private["metadata"]
    if kind.namespaced:
        given = metadata.get("namespace")
        if namespace is not None and given and given != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if not (given or namespace):
            raise errors.bad_request("an empty namespace may not be set when a resource name is provided")
        metadata["namespace"] = given or namespace
    else:
        metadata.pop("namespace", None)
    _drop_repeated_owners(metadata, options)
    return private


def _drop_repeated_owners(metadata: JsonObject, options: WriteOptions) -> None:
    owners = metadata.get("ownerReferences") or []
    kept: list[JsonObject] = []
    repeated = []
    for owner in owners:
        if owner in kept:
            repeated.append(str(owner.get("uid", "")))
        else:
            kept.append(owner)
    if repeated:
        metadata["ownerReferences"] = kept
        text = _REPEATED_OWNERS + ", ".join(repeated)
        options.warnings.extend([text] if text not in options.warnings else [])


def decode_parts(kind: Kind, obj: JsonObject, *, options: WriteOptions) -> JsonObject:
    """Return a private copy of an object that may be partial, as the configuration of a server-side apply is."""
    _check_type(kind, obj)
    private: JsonObject = copy_tree(obj) if kind.custom else _drop_nulls(obj)
    private["apiVersion"], private["kind"] = kind.api_version, kind.kind
    metadata = private.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise DecodingError(kind, f"metadata must be an object, not {_json_type(metadata)}")
    private["metadata"] = _drop_nulls(metadata) if kind.custom else metadata
    prune(kind, private, options=options)
    if not kind.custom:
        check_types(kind, private)
    else:
        _refuse(kind, _metadata_schema().validate(private["metadata"], "metadata"))
        _canonicalize(kind, _metadata_schema(), private["metadata"])
    return private


def prune(kind: Kind, obj: JsonObject, *, options: WriteOptions) -> None:
    """Drop what the schema does not know; say so, or refuse, as the client asked."""
    unknown = [f"metadata.{path}" for path in _metadata_schema().prune(obj["metadata"])]
    if kind.schema is not None:
        unknown += kind.schema.prune(obj)
    if not (unknown or options.strict_error) or options.field_validation == "Ignore":
        return
    texts = [f"unknown field {errors.quote(path)}" for path in unknown]
    if options.field_validation == "Strict":
        wrong = [options.strict_error, *texts] if options.strict_error else texts
        raise DecodingError(kind, f"strict decoding error: {', '.join(wrong)}", unknown)
    options.warnings.extend(text for text in texts if text not in options.warnings)


def check_types(kind: Kind, obj: JsonObject) -> None:
    """Refuse values of the wrong type in an object of a built-in kind; quantities and times get their usual form."""
    if kind.schema is not None:
        _refuse(kind, [error for error in kind.schema.validate(obj) if _is_misfit(error)])
        _canonicalize(kind, kind.schema, obj)


def _is_misfit(error: FieldError) -> bool:
    """Return whether a value is not of its type: of another, or a number that it cannot hold."""
    return error.type == "TypeInvalid" or error.detail.startswith("Checked value must be of type integer")


def _canonicalize(kind: Kind, schema: Schema, obj: JsonObject) -> None:
    try:
        schema.canonicalize(obj)
    except ValueError as error:
        raise DecodingError(kind, str(error)) from error


def _refuse(kind: Kind, misfits: list[FieldError]) -> None:
    if misfits:
        of_other_type = [error for error in misfits if error.value in _JSON_TYPES]
        raise DecodingError(kind, "; ".join(map(str, misfits)), misfits=of_other_type)


def _metadata_schema() -> Schema:
    """Give the schema of metadata, which is the same for all kinds; pruning a whole object leaves metadata alone."""
    return builtin_schema("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")


def _check_type(kind: Kind, obj: JsonObject) -> None:
    """Refuse an object of another kind. Built-in kinds may leave their name out, as with a real server."""
    for field, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        given = obj.get(field)
        if given == expected or (given in (None, "") and not kind.custom):
            continue
        if given in (None, ""):
            raise errors.bad_request(
                f"Object '{field}' is missing: the body must be a {kind.kind} of {kind.api_version}"
            )
        what = "API version" if field == "apiVersion" else "kind"
        raise errors.bad_request(f"the {what} in the data ({given}) does not match the expected {what} ({expected})")


def _json_type(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a string", list: "an array", dict: "an object"}
    return names.get(type(value), "a number")


def _drop_nulls(node: Any) -> Any:
    """Return a copy of a tree without null members: to a built-in kind, null is the same as absent."""
    if isinstance(node, dict):
        return {key: _drop_nulls(value) for key, value in node.items() if value is not None}
    if isinstance(node, list):
        return [_drop_nulls(value) for value in node]
    return node
