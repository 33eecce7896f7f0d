"""Users, as authentication finds them and authorization judges them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.runtime.jsontree import JsonObject

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
"""The group that may do everything, whatever the roles say."""

_ACCOUNT_PREFIX = "system:serviceaccount:"
_ACCOUNTS_GROUP = "system:serviceaccounts"


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
