"""Which shape of answer a client accepts.

Guarantees:
- the first media type of `Accept` that the server can produce wins; like the API server it ignores weights;
- protobuf is passed over in favour of the JSON that clients list behind it;
- an `Accept` that admits nothing of ours is 406, never an answer in a format the client did not ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trainmaster.devcluster.apiserver import errors

ShapeName: TypeAlias = Literal["Object", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]

JSON = "application/json"
_ANY = frozenset({JSON, "application/*", "*/*"})


@dataclass(frozen=True, slots=True)
class Shape:
    """How an object or a list is presented: as it is, as a table, or only its metadata."""

    name: ShapeName = "Object"
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """The apiVersion of a transformed answer."""
        return f"meta.k8s.io/{self.version}"

    @property
    def is_table(self) -> bool:
        """Whether the answer is a Table."""
        return self.name == "Table"

    @property
    def is_metadata(self) -> bool:
        """Whether the answer holds nothing but metadata."""
        return self.name.startswith("PartialObjectMetadata")


OBJECT = Shape()


def negotiate(accept: str) -> Shape:
    """Choose the shape of an answer that holds objects."""
    for media_type, parameters in _media_types(accept):
        if media_type not in _ANY:
            continue
        wanted = parameters.get("as", "")
        if not wanted:
            return OBJECT
        if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in {"v1", "v1beta1"}:
            continue
        if wanted in {"Table", "PartialObjectMetadata", "PartialObjectMetadataList"}:
            return Shape(wanted, parameters["v"])  # type: ignore[arg-type]  # checked by the line above
    raise errors.not_acceptable(f"only the following media types are accepted: {JSON}")


def accepts_aggregated_discovery(accept: str) -> str | None:
    """Return the version of the aggregated discovery that the client prefers over the legacy documents."""
    for media_type, parameters in _media_types(accept):
        if media_type not in _ANY:
            continue
        if "as" not in parameters:
            return None
        if parameters.get("g") == "apidiscovery.k8s.io" and parameters["as"] == "APIGroupDiscoveryList":
            version = parameters.get("v")
            if version in {"v2", "v2beta1"}:
                return version
    return None


def _media_types(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    for clause in (accept or "*/*").split(","):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        pairs = (part.partition("=") for part in rest)
        yield media_type.lower(), {name.strip(): value.strip().strip('"') for name, _, value in pairs}
