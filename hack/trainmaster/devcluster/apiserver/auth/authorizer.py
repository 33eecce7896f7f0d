"""Authorization: what a request wants to do, and whoever decides whether its user may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
"""The group that may do everything, whatever the roles say."""

_ACCOUNT_PREFIX = "system:serviceaccount:"
_ACCOUNTS_GROUP = "system:serviceaccounts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What a request wants to do: to a resource, or to a path that is none."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    """Only of requests that are not for resources."""

    @property
    def full_resource(self) -> str:
        """The resource and its subresource, as rules and messages name them."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request is allowed."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Decides what users may do."""

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        """Decide about one request."""
        ...

    def rules_for(self, user: User, namespace: str) -> Sequence[JsonObject]:
        """Return the policy rules that hold for a user in a namespace."""
        ...


class AlwaysAllowAuthorizer:
    """The authorizer of a cluster that does not enforce RBAC."""

    def authorize(self, user: User, attributes: Attributes) -> Decision:  # noqa: ARG002 - the decision is always the same
        """Allow it."""
        return Decision(True, "the embedded cluster does not enforce RBAC")

    def rules_for(self, user: User, namespace: str) -> Sequence[JsonObject]:  # noqa: ARG002 - see above
        """Return the rules that allow everything."""
        return EVERYTHING


EVERYTHING: Sequence[JsonObject] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


def require(authorizer: Authorizer, user: User, attributes: Attributes) -> None:
    """Raise the 403 of the API server if a user may not do something."""
    decision = authorizer.authorize(user, attributes)
    if not decision.allowed:
        raise _forbidden(user, attributes, decision.reason)


def _forbidden(user: User, attributes: Attributes, reason: str) -> StatusError:
    text = f"User {errors.quote(user.name)} cannot {attributes.verb} "
    if attributes.path:
        text += f"path {errors.quote(attributes.path)}"
    else:
        place = f"in the namespace {errors.quote(attributes.namespace)}" if attributes.namespace else ""
        text += f"resource {errors.quote(attributes.full_resource)} in API group {errors.quote(attributes.group)} "
        text += place or "at the cluster scope"
    if reason:
        text += f": {reason}"
    if attributes.path:
        return errors.forbidden(f"forbidden: {text}")
    resource = GroupResource(attributes.group, attributes.resource)
    return errors.forbidden(text, resource=resource, name=attributes.name)


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def info(self) -> JsonObject:
        """Return the user as reviews show it."""
        info: JsonObject = {"username": self.name}
        if self.uid:
            info["uid"] = self.uid
        info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra.items()}
        return info


ADMINISTRATOR = User("trainmaster-admin", (MASTERS, AUTHENTICATED))


def make_username(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"{_ACCOUNT_PREFIX}{namespace}:{name}"


def split_username(user_name: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account that a user name stands for, if it is one."""
    namespace, separator, name = user_name.removeprefix(_ACCOUNT_PREFIX).partition(":")
    if not user_name.startswith(_ACCOUNT_PREFIX) or not separator or not namespace or not name or ":" in name:
        return None
    return namespace, name


def make_group_names(namespace: str) -> tuple[str, str]:
    """Return the groups that all service accounts of a namespace are in."""
    return (_ACCOUNTS_GROUP, f"{_ACCOUNTS_GROUP}:{namespace}")
