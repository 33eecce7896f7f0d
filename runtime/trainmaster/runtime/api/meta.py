"""What every model of an API object has in common, and the parts of `meta/v1` that Trainmaster reads.

- Types are strict: `"2"`, `2.0` or `true` are not the integer 2. Limits (lengths, minima, patterns) are not checked:
  the API server does that from the CRD, and an object that it accepted must always be readable.
- Fields that this version does not know are kept and written out again by `to_json`.
- In fields of models `null` means the same as absent, as it does for the API server.
- The custom resource definitions are made from the models: what one says of a field beyond type and default is a
  `Schema` in its annotation, and the first paragraph of its docstring, or else of its class, is the description.
- Models are frozen, because objects of a cache are shared; `model_copy(update=...)` makes a changed one. The lists and
  maps in them are not: whoever hands a model to somebody who may change them gives `model_copy(deep=True)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticUseDefault

from trainmaster.runtime.jsontree import SCALARS, JsonObject


class Schema:
    """What the definition of a field, or as `__schema__` that of a model, says beyond types and defaults.

    It means nothing to pydantic.

    Args:
        rules: Expressions in CEL, with messages; they see the value as `self`, the one before an update as `oldSelf`.
        required: Whether the field must be there; None: if the model has no default.
        ref: The type that a JSON tree has: of Kubernetes, like `core.v1.EnvVar` or the field `core.v1.PodSpec.volumes`,
            or the model `JobSetSpec` or `RuntimePatchSpec`.
        descriptions: Of fields below, by name, in place of those of their class.
        keywords: Of the OpenAPI schema, `x-kubernetes-` left out; None takes one away.
    """

    __slots__ = ("descriptions", "keywords", "ref", "required", "rules")

    def __init__(
        self,
        *rules: tuple[str, str],
        required: bool | None = None,
        ref: str = "",
        descriptions: Mapping[str, str] | None = None,
        **keywords: Any,
    ) -> None:
        self.rules: tuple[tuple[str, str], ...] = rules
        self.required: bool | None = required
        self.ref: str = ref
        self.descriptions: Mapping[str, str] = descriptions or {}
        self.keywords: dict[str, Any] = keywords


class Definition(NamedTuple):
    """What the definition of a kind says beyond its schema."""

    group: str
    version: str
    namespaced: bool = True

    columns: tuple[tuple[str, str], ...] = ()
    """Of `kubectl get`: names and paths."""

    scale: tuple[str, str, str] | None = None
    """Of `kubectl scale`: paths of the number that is wanted, of the number there is, and of the selector of pods."""


IMMUTABLE: Final[tuple[str, str]] = ("self == oldSelf", "field is immutable")
"""The rule that a value which is there before and after an update does not change."""

SUBDOMAIN: Final = 253
"""Longest DNS subdomain (RFC 1123): names of most objects."""

NAME: Final = Schema(minLength=1, maxLength=SUBDOMAIN)
"""Something that is named: neither empty nor longer than the name of any object."""

DATE_TIME: Final = Schema(format="date-time")
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+")
_PARTS: Final = re.compile(r"([0-9.]+)(ms|s|m|h)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
AGE: Final[tuple[str, str]] = ("Age", ".metadata.creationTimestamp")


def duration_seconds(duration: str) -> float:
    """Convert a duration as Go writes it (`metav1.Duration`), such as `1m30s`, to seconds.

    Raises:
        ValueError: It is none.
    """
    if not _DURATION.fullmatch(duration):
        raise ValueError(f"must be a duration as Go writes it, for instance 90s, 15m or 1h30m, not {duration!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(duration))


class ApiModel(BaseModel):
    """Base of all API types: snake_case in Python, camelCase in JSON."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="allow",
        frozen=True,
        strict=True,
        defer_build=True,  # whoever reads no TrainJob does not pay for its validator
    )

    def to_json(self) -> JsonObject:
        """Return the JSON object: the fields that were given, with their JSON names."""
        return self.model_dump(by_alias=True, exclude_unset=True)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Copy everything below; several times faster than pydantic's way, which has to think of cycles."""
        copied = self.__new__(type(self))
        extra = self.__pydantic_extra__
        _set(copied, "__dict__", _copy(self.__dict__))
        _set(copied, "__pydantic_extra__", _copy(extra) if extra else {})
        _set(copied, "__pydantic_fields_set__", self.__pydantic_fields_set__.copy())
        _set(copied, "__pydantic_private__", None)
        return copied


_set = object.__setattr__  # models are frozen


def _copy(node: Any) -> Any:
    """Copy a tree of JSON and models."""
    if type(node) is dict:
        return {key: value if type(value) in SCALARS else _copy(value) for key, value in node.items()}
    if type(node) is list:
        return [value if type(value) in SCALARS else _copy(value) for value in node]
    return node.__deepcopy__() if isinstance(node, ApiModel) else node


def _null_to_default(value: Any) -> Any:
    if value is None:
        raise PydanticUseDefault
    return value


NullIsDefault = BeforeValidator(_null_to_default)
"""Annotation of a field whose default is not None: null gives that default."""

Strings: TypeAlias = Annotated[list[str], NullIsDefault]
StringMap: TypeAlias = Annotated[dict[str, str], NullIsDefault]


class OwnerReference(ApiModel):
    """The object that another one belongs to."""

    api_version: str
    """Of the owner."""

    kind: str
    """Of the owner."""

    name: str
    """Of the owner."""

    uid: str
    """Of the owner: what counts."""

    controller: bool | None = None
    """Whether the owner is the one that manages the object; at most one is."""

    block_owner_deletion: bool | None = None
    """Whether deletion in the foreground waits for the object."""


class ObjectMeta(ApiModel):
    """Metadata of an object; as in Kubernetes, an empty string or list or map is the same as none."""

    name: Annotated[str, NullIsDefault] = ""
    """Unique for its kind in its namespace."""

    namespace: Annotated[str, NullIsDefault] = ""
    """Empty for what is in none."""

    uid: Annotated[str, NullIsDefault] = ""
    """Unique for all time; empty while the API server has not seen the object."""

    resource_version: Annotated[str, NullIsDefault] = ""
    """The version of the object; nothing but equality means anything."""

    generation: Annotated[int, NullIsDefault] = 0
    """How often the spec has changed."""

    creation_timestamp: str | None = None
    """In RFC 3339."""

    deletion_timestamp: str | None = None
    """In RFC 3339; None unless it is being deleted."""

    labels: StringMap = Field(default_factory=dict)
    """By key."""

    annotations: StringMap = Field(default_factory=dict)
    """By key."""

    finalizers: Strings = Field(default_factory=list)
    """What has to be done before it is gone."""

    owner_references: Annotated[list[OwnerReference], NullIsDefault] = Field(default_factory=list)
    """What it belongs to."""


class Condition(ApiModel):
    """One aspect of the object's state."""

    type: Annotated[
        str,
        Schema(
            maxLength=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ]
    """What the condition is about, for instance Failed."""

    status: Annotated[str, Schema(enum=["True", "False", "Unknown"])]
    """Whether it holds."""

    reason: Annotated[
        str,
        NullIsDefault,
        Schema(required=True, minLength=1, maxLength=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ] = ""
    """Why, as a word for programs."""

    message: Annotated[str, NullIsDefault, Schema(required=True, maxLength=32768)] = ""
    """Why, as a sentence for people."""

    last_transition_time: Annotated[str | None, Schema(required=True, format="date-time")] = None
    """When status last changed."""

    observed_generation: Annotated[int | None, Schema(minimum=0, format="int64")] = None
    """The metadata.generation that this is about."""

    @property
    def is_true(self) -> bool:
        """Whether the condition holds."""
        return self.status == "True"
