"""Objections of a server to an object, and its warnings, as lines for the author of the object."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.controller.cli.manifests import Manifest
from trainmaster.controller.kube.rest.errors import ApiError


def error_lines(error: ApiError) -> list[str]:
    """Return the objections of the server, one for each field if it names fields."""
    # The cause without a field is the server's remark that it stopped here; it asks for nothing.
    causes = [cause for cause in error.causes if cause.get("message") and cause.get("field") != "<nil>"]
    if causes:
        return [
            f"{field}: {cause['message']}" if (field := cause.get("field")) else cause["message"] for cause in causes
        ]
    _, strict, fields = error.message.partition("strict decoding error: ")
    if strict:
        return fields.split(", ")
    return [error.message or str(error)]


def unknown_kind(manifest: Manifest) -> str:
    """Say that the cluster does not know what an object is."""
    return (
        f"{manifest.place}: the cluster serves no kind {manifest.kind} in {manifest.api_version}; "
        "correct the manifest, or install the definition of that kind"
    )


def warnings_in(headers: Mapping[str, str]) -> list[str]:
    """Read the texts out of headers like `Warning: 299 - "text"`."""
    return [
        value.partition('"')[2].rpartition('"')[0] or value
        for name, value in headers.items()
        if name.lower() == "warning"
    ]
