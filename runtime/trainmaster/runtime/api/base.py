"""What every model of an API object has in common.

- Types are strict: `"2"`, `2.0` or `true` are not the integer 2. Limits (lengths, minima, patterns) are not checked:
  the API server does that from the CRD, and an object that it accepted must always be readable.
- Fields that this version does not know are kept and written out again by `to_json`.
- In fields of models `null` means the same as absent, as it does for the API server.
- Models are frozen, because objects of a cache are shared; `model_copy(update=...)` makes a changed one.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticUseDefault

from trainmaster.runtime.jsontree import JsonObject


class ApiModel(BaseModel):
    """Base of all API types: snake_case in Python, camelCase in JSON."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="allow",
        frozen=True,
        strict=True,
    )

    def to_json(self) -> JsonObject:
        """Return the JSON object: the fields that were given, with their JSON names."""
        return self.model_dump(by_alias=True, exclude_unset=True)


def _null_to_default(value: Any) -> Any:
    if value is None:
        raise PydanticUseDefault
    return value


NullIsDefault = BeforeValidator(_null_to_default)
"""Annotation of a field whose default is not None: null gives that default."""

Strings: TypeAlias = Annotated[list[str], NullIsDefault]
StringMap: TypeAlias = Annotated[dict[str, str], NullIsDefault]
