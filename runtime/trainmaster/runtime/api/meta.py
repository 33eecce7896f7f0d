"""Object metadata and conditions: the parts of `meta/v1` that Trainmaster reads."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainmaster.runtime.api.base import ApiModel, NullIsDefault, StringMap, Strings


class OwnerReference(ApiModel):
    """The object that another one belongs to."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiModel):
    """Metadata of an object; as in Kubernetes, an empty string or list or map is the same as none."""

    name: Annotated[str, NullIsDefault] = ""
    namespace: Annotated[str, NullIsDefault] = ""
    uid: Annotated[str, NullIsDefault] = ""
    resource_version: Annotated[str, NullIsDefault] = ""
    generation: Annotated[int, NullIsDefault] = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: StringMap = Field(default_factory=dict)
    annotations: StringMap = Field(default_factory=dict)
    finalizers: Strings = Field(default_factory=list)
    owner_references: Annotated[list[OwnerReference], NullIsDefault] = Field(default_factory=list)


class Condition(ApiModel):
    """One aspect of an object's state; `status` is "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: Annotated[str, NullIsDefault] = ""
    message: Annotated[str, NullIsDefault] = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None

    @property
    def is_true(self) -> bool:
        """Whether the condition holds."""
        return self.status == "True"
