"""Owners and what they own: the requests that every reconciler of jobs sends alike, and the rights that these need.

Guarantees:
- C-1: `check_owner` lets nothing be built again for an owner that the server does not have as the cache shows it.
- C-10: an apply or a delete carries the UID of what was seen; where nothing was seen, nothing is changed that exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import structlog

from trainmaster.controller.kube.rest.client import ABSENT, KubeClient
from trainmaster.controller.kube.rest.errors import Conflict, NotFound
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

OWNER_INDEX: Final = "owner"
"""Index of what jobs own, by `owner_value` of the controller."""


def owner_value(namespace: str | None, uid: str) -> str:
    """Return the value under which the index has what a job controls: another namespace may name any UID."""
    return f"{namespace}/{uid}"


def owner_values(obj: JsonObject) -> list[str]:
    """The index function of `OWNER_INDEX`."""
    metadata = obj["metadata"]
    return [
        owner_value(metadata.get("namespace"), reference["uid"])
        for reference in metadata.get("ownerReferences") or []
        if reference.get("controller") and reference.get("uid")
    ]


def owner_rules(resource: Resource, *, needed_by: str) -> Iterator[PolicyRule]:
    """Return the rights that it takes to own objects.

    Args:
        resource: The kind of the owners.
        needed_by: Who reconciles them.
    """
    yield PolicyRule(
        resource=resource, verbs=("get",), needed_by=needed_by, reason="build nothing for a job that is gone"
    )
    yield PolicyRule(
        resource=resource,
        verbs=("delete",),
        needed_by=needed_by,
        reason="end what has outlived ttlSecondsAfterFinished",
    )
    yield PolicyRule(
        resource=resource,
        subresource="finalizers",
        verbs=("update",),
        needed_by=needed_by,
        reason="own objects with blockOwnerDeletion, where OwnerReferencesPermissionEnforcement is on (OpenShift)",
    )


async def check_owner(client: KubeClient, resource: Resource, raw: JsonObject) -> None:
    """Read an owner itself, and refuse to go on if the cache is behind: its event will bring the key back.

    Args:
        client: Performs the request.
        resource: The kind of the owner.
        raw: The owner as the cache shows it.

    Raises:
        Conflict: The server has it in another state, or not any more.
    """
    metadata = raw["metadata"]
    try:
        live = await client.get(resource, metadata["namespace"], metadata["name"])
    except NotFound as error:
        gone = f"the {resource.kind} is gone, the cache lags"
        raise Conflict(status=409, reason="Conflict", message=gone) from error
    if live["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
        raise Conflict(status=409, reason="Conflict", message=f"the {resource.kind} has changed, the cache lags")


async def write_owned(
    client: KubeClient, resource: Resource, obj: JsonObject, *, uid: str | None, create: bool
) -> JsonObject:
    """Create or apply an object; returns what the server made of it.

    Args:
        client: Performs the request.
        resource: The kind of the object.
        obj: All of it that is ours.
        uid: The UID of the object that is brought up to date; None if none was seen.
        create: Whether it is created, by a request which can do nothing else.

    Raises:
        AlreadyExists, Conflict: There is one, or another one than was seen.
        NotFound: Its kind is not served, or its namespace is gone.
        KubeError: The server refused, or could not be asked.
    """
    try:
        if create:
            return await client.create(resource, obj, field_manager=FIELD_MANAGER)
        precondition = {"resourceVersion": ABSENT} if uid is None else {"uid": uid}
        sent = {**obj, "metadata": {**obj["metadata"], **precondition}}
        return await client.apply(resource, sent, field_manager=FIELD_MANAGER)
    except NotFound as error:
        if error.reason:
            raise
        # A kind that is not served is answered by a page of the web server, not by a Status.
        missing = f"the cluster does not serve {obj['kind']} ({obj['apiVersion']}); {resource.remedy}"
        raise NotFound(status=404, reason="NotFound", message=missing) from error


async def delete_owner(client: KubeClient, resource: Resource, raw: JsonObject) -> bool:
    """Delete an owner that has outlived its time to live, unless it is another one or has changed.

    Args:
        client: Performs the request.
        resource: The kind of the owner.
        raw: The owner as the cache shows it.

    Returns:
        Whether it was there.
    """
    metadata = raw["metadata"]
    try:
        await client.delete(
            resource,
            metadata["namespace"],
            metadata["name"],
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
        )
    except NotFound:
        log.debug("to be deleted, but gone already")
        return False
    log.debug("deleted, its time to live has passed")
    return True
