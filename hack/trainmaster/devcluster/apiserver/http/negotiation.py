"""Content negotiation: in which form a client accepts the objects of a response.

Guarantees:
- the first media type of `Accept` that the server can produce wins; like the API server it ignores weights;
- protobuf is passed over in favour of the JSON that clients list behind it;
- an `Accept` that admits nothing of ours is 406, never a response in a format that the client does not accept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trainmaster.devcluster.apiserver import errors

ConvertTo: TypeAlias = Literal["Object", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]

JSON = "application/json"
_ANY = frozenset({JSON, "application/*", "*/*"})


@dataclass(frozen=True, slots=True)
class MediaTypeOptions:
    """How an object or a list is sent: as it is, as a table, or only its metadata."""

    convert: ConvertTo = "Object"
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """The apiVersion of a converted response."""
        return f"meta.k8s.io/{self.version}"

    @property
    def is_table(self) -> bool:
        """Whether the response is a Table."""
        return self.convert == "Table"

    @property
    def is_metadata(self) -> bool:
        """Whether the response holds nothing but metadata."""
        return self.convert.startswith("PartialObjectMetadata")


OBJECT = MediaTypeOptions()


def negotiate_media_type(accept: str) -> MediaTypeOptions:
    """Choose the form of a response that holds objects."""
    for media_type, parameters in _media_types(accept):
        if media_type not in _ANY:
            continue
        wanted = parameters.get("as", "")
        if not wanted:
            return OBJECT
        if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in {"v1", "v1beta1"}:
            continue
        if wanted in {"Table", "PartialObjectMetadata", "PartialObjectMetadataList"}:
            return MediaTypeOptions(wanted, parameters["v"])  # type: ignore[arg-type]  # checked by the line above
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
