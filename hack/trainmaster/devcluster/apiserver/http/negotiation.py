"""Negotiation: the form of a response that a client accepts and the server can produce.

Guarantees:
- the media type of the highest weight that the server can produce wins, of several the first;
- protobuf is passed over in favour of the JSON or YAML that clients list beside it;
- an `Accept` that admits nothing of ours is 406, never a response in a format that the client does not accept.

Built-in kinds are routed by media types first, as in a real server: there `application/*` names none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.http.protobuf import PROTOBUF

ConvertTo: TypeAlias = Literal["Object", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]
Serializer: TypeAlias = Literal["application/json", "application/yaml"]

JSON: Serializer = "application/json"
YAML: Serializer = "application/yaml"

_OBJECTS = (JSON, YAML, PROTOBUF)
_STREAMS = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")


@dataclass(frozen=True, slots=True)
class MediaTypeOptions:
    """How an object or a list is sent: as it is, as a table, or only its metadata; in JSON or in YAML."""

    convert: ConvertTo = "Object"
    version: str = "v1"
    serializer: Serializer = JSON

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


def check_representations(accept: str, *, collection: bool) -> None:
    """Refuse what the routes of built-in kinds do not lead to: media types that do not stand there by name."""
    offered = (*_OBJECTS, *_STREAMS) if collection else _OBJECTS
    if not any(media_type == "*/*" or media_type in offered for media_type, _ in _media_types(accept)):
        raise errors.not_acceptable(f"406: Not Acceptable\n\nAvailable representations: {', '.join(offered)}")


def negotiate_media_type(accept: str, *, watching: bool = False) -> MediaTypeOptions:
    """Choose the form of a response that holds objects; a watch is always JSON."""
    for media_type, parameters in _media_types(accept):
        serializer = _serializer(media_type)
        if serializer is None or (watching and serializer == YAML):
            continue
        if "stream" in parameters and not (watching and parameters["stream"] == "watch"):
            continue
        wanted = parameters.get("as", "")
        if not wanted:
            return replace(OBJECT, serializer=serializer)
        if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in {"v1", "v1beta1"}:
            continue
        if wanted in {"Table", "PartialObjectMetadata", "PartialObjectMetadataList"}:
            return MediaTypeOptions(wanted, parameters["v"], serializer)  # type: ignore[arg-type]  # checked above
    produced: Sequence[str] = _STREAMS[:1] if watching else (JSON, YAML)
    raise errors.not_acceptable(f"only the following media types are accepted: {', '.join(produced)}")


def prefers_yaml(accept: str) -> bool:
    """Return whether a response that is one document goes out as YAML."""
    for media_type, _ in _media_types(accept):
        if (serializer := _serializer(media_type)) is not None:
            return serializer == YAML
    return False


def accepts_aggregated_discovery(accept: str) -> str | None:
    """Return the version of the aggregated discovery that the client prefers over the legacy documents."""
    for media_type, parameters in _media_types(accept):
        if _serializer(media_type) != JSON:
            continue
        if "as" not in parameters:
            return None
        if parameters.get("g") == "apidiscovery.k8s.io" and parameters["as"] == "APIGroupDiscoveryList":
            version = parameters.get("v")
            if version in {"v2", "v2beta1"}:
                return version
    return None


def _serializer(media_type: str) -> Serializer | None:
    if media_type == YAML:
        return YAML
    return JSON if media_type in (JSON, "application/*", "*/*") else None


def _media_types(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Return media types and their parameters, those of the highest weight first."""
    clauses = list(_clauses(accept))
    if any("q" in parameters for _, parameters in clauses):
        clauses.sort(key=lambda clause: -_weight(clause[1]))
    return clauses


def _clauses(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    for clause in (accept or "*/*").split(","):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        pairs = (part.partition("=") for part in rest)
        yield media_type.lower(), {name.strip(): value.strip().strip('"') for name, _, value in pairs}


def _weight(parameters: dict[str, str]) -> float:
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 1.0
