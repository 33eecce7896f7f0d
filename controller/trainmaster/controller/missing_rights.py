"""Missing rights: what the API server does not allow us, told once, with who needs it and what to do.

Guarantees:
- A right that is missing is told when a request is refused for want of it, and not again before it was granted and
  taken away: the parts that send requests go on trying, and are silent about it (`Forbidden.told`).
- That it was granted is told as well, by the first request that shows it.
- The words of the server are for operators, in the log. Owners of jobs read, in conditions and events, what the right
  is for and whom to ask: that is what the error says from then on.
- Only the authorizer of the API server counts: a quota, a namespace that is being deleted or an admission webhook
  refuse with 403, too, and have nothing to do with rights. They can be told apart by the text alone, which
  kube-apiserver makes the same for every authorizer (`responsewriters.ForbiddenMessage`).

It may be used from several threads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

import structlog

from trainmaster.controller.kube.rest.errors import Forbidden
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.policyrule import READ, PolicyRule

log = structlog.get_logger(__name__)

_REFUSAL: Final = re.compile(
    r'cannot (?P<verb>[a-z]+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)"| at the cluster scope)'
)
_ESCALATION: Final = "is attempting to grant RBAC permissions not currently held"
"""What kube-apiserver says to who makes a role with rights that they do not have."""

_VERBS: Final[Mapping[str, str]] = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

_MOST: Final = 1000
"""Namespaces that are remembered for each right."""

_HINT: Final = (
    "`trainmaster rbac --config FILE` prints the roles that this configuration needs; it goes on by itself once granted"
)
ASK: Final = "tell your administrator, for whom the log of the manager says what to grant"
"""What owners of jobs can do about a right that the manager lacks."""


class Right(NamedTuple):
    """A verb on a resource, in a namespace or, where that is empty, in the whole cluster."""

    verb: str
    resource: str
    """With its subresource."""
    group: str
    namespace: str

    @property
    def siblings(self) -> set[Right]:
        """The rights that are missed, and granted, together with this one: a cache needs all of `READ`."""
        return {self._replace(verb=verb) for verb in READ} if self.verb in READ else {self}

    def __str__(self) -> str:
        where = f'in namespace "{self.namespace}"' if self.namespace else "in the whole cluster"
        return f"{self.verb} {_name(self.resource, self.group)} {where}"


class MissingRights:
    """The rights that the API server refuses to a process."""

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self._rules = list(rules)
        self._missing: dict[Right, set[str]] = {}
        """The rights, without a namespace, and the namespaces in which they are missing: "" is the whole cluster."""

        self._escalations: set[str] = set()
        """Rights that could not be given away, in the words of the server."""

    def refused(self, error: Forbidden) -> None:
        """Take note of a refusal, and tell of it if that is news."""
        if _ESCALATION in error.message:
            self._refused_to_give(error)
            return
        right = _denied(error)
        if right is None:
            return
        purpose = next((f", which it needs to {rule.reason}" for rule in self._needing(right)), "")
        error.for_owners(f"Trainmaster may not {right}{purpose}; {ASK}")
        kind = right._replace(namespace="")
        # What is missing in one namespace is most often missing in all of them, and what a cache needs goes together.
        is_news = not any(self._missing.get(each) for each in kind.siblings)
        namespaces = self._missing.setdefault(kind, set())
        if len(namespaces) < _MOST:
            namespaces.add(right.namespace)
        if is_news:
            self._tell(right)

    def accepted(self, method: str, path: str, params: Mapping[str, str], status: int) -> None:
        """Take note of a request that was allowed."""
        if not self._missing:
            return
        for right in _used(method, path, params, status):
            kinds = right._replace(namespace="").siblings
            missing = [namespaces for kind in kinds if (namespaces := self._missing.get(kind))]
            for namespaces in missing:
                namespaces.discard(right.namespace)
            if missing and not any(missing):
                for kind in kinds:
                    self._missing.pop(kind, None)
                log.info("a right was granted", verb=right.verb, resource=_name(right.resource, right.group))

    def of(self, resource: Resource, verbs: Collection[str]) -> list[str]:
        """Return those of some verbs on one resource, in words."""
        return [
            str(kind._replace(namespace=namespace))
            for kind, namespaces in list(self._missing.items())
            if (kind.resource, kind.group) == (resource.plural, resource.group) and kind.verb in verbs
            for namespace in sorted(namespaces)
        ]

    def summary(self) -> list[str]:
        """Return what is missing, wherever that is, in words; they name no namespace."""
        kinds = [kind for kind, namespaces in list(self._missing.items()) if namespaces]
        return sorted({f"{kind.verb} {_name(kind.resource, kind.group)}" for kind in kinds})

    def _refused_to_give(self, error: Forbidden) -> None:
        rights = error.message.partition(_ESCALATION)[2]
        if rights not in self._escalations and len(self._escalations) < _MOST:
            self._escalations.add(rights)
            log.warning("rights are missing that are to be given to pods", refusal=error.message, hint=_HINT)
        error.for_owners(
            f"Trainmaster may not give the pods of a job the rights that they need, because it has not got them "
            f"itself; {ASK}"
        )

    def _tell(self, right: Right) -> None:
        namespace = {"namespace": right.namespace} if right.namespace else {}
        rules = self._needing(right)
        write = log.info if rules and all(rule.optional for rule in rules) else log.warning
        write(
            "a right is missing",
            verb=right.verb,
            resource=_name(right.resource, right.group),
            **namespace,
            **_purpose(rules),
            hint=_HINT,
        )

    def _needing(self, right: Right) -> list[PolicyRule]:
        return [
            rule
            for rule in self._rules
            if (rule.full_resource, rule.resource.group) == (right.resource, right.group) and right.verb in rule.verbs
        ]


def _purpose(rules: Iterable[PolicyRule]) -> dict[str, str]:
    """Say who needs a right, and what for."""
    needed_by = ", ".join(sorted({rule.needed_by for rule in rules}))
    reasons = "; ".join(dict.fromkeys(rule.reason for rule in rules))
    return {"needed_by": needed_by, "reason": reasons} if needed_by else {}


def _name(resource: str, group: str) -> str:
    plural, slash, subresource = resource.partition("/")
    return f"{plural}.{group}{slash}{subresource}" if group else resource


def _denied(error: Forbidden) -> Right | None:
    found = _REFUSAL.search(error.message)
    return found and Right(found["verb"], found["resource"], found["group"], found["namespace"] or "")


def _used(method: str, path: str, params: Mapping[str, str], status: int) -> list[Right]:
    """Return the rights that a request has shown to be there."""
    match [unquote(each) for each in path.strip("/").split("/")]:
        case ["api", _, *rest] if rest:
            group = ""
        case ["apis", group, _, *rest] if rest:
            pass
        case _:
            return []
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    verb = _VERBS.get(method) or ("get" if name else "watch" if params.get("watch") else "list")
    resource = f"{plural}/{subresource}" if subresource else plural
    right = Right(verb, resource, group, namespace)
    # An apply that found nothing to change has created it.
    created = method == "PATCH" and status == 201
    return [right, right._replace(verb="create")] if created else [right]
