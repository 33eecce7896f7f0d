"""Policy rules: the rights that a part of the manager needs, declared beside the calls that need them.

A `PolicyRule` is that of `rbac.authorization.k8s.io`, for one resource, with who needs it and why. Whoever calls a
client has `POLICY_RULES`, or a function `policy_rules` where they depend on something; `manager.policy_rules` collects
them for a configuration, with those of `kube`, which knows of no rights; `manager.roles` makes roles of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.controller.kube.rest.resources import Resource

VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
"""The verbs that rules have, in their usual order."""

READ: Final = ("list", "watch")
"""What a cache needs."""

TRAINING_OPERATOR: Final = "training-operator"
"""The role of what only jobs of `kubeflow.org/v1` need."""

_NAMELESS: Final = frozenset({"create"})
"""Verbs of requests that name no object, so that a rule with names never allows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """Verbs on one resource, and who needs them for what.

    Attributes:
        verbs: Verbs, in the order of `VERBS`.
        needed_by: The part or the plugin that needs them, as people call it.
        subresource: For instance `status`; empty for the object itself.
        names: The only objects that it is about; empty for all.
        namespace: The only namespace that it is about; empty for all in which TrainJobs are served.
        optional: Whether everybody who does not use it can do without.
        role: The suffix of the name of the role that grants it; empty for the role that every installation has.
    """

    resource: Resource
    verbs: tuple[str, ...]
    needed_by: str
    reason: str
    subresource: str = ""
    names: tuple[str, ...] = ()
    namespace: str = ""
    optional: bool = False
    role: str = ""

    def __post_init__(self) -> None:
        if not self.verbs or tuple(verb for verb in VERBS if verb in self.verbs) != self.verbs:
            raise ValueError(f"the verbs of a rule are some of {', '.join(VERBS)}, in this order, not {self.verbs}")
        if self.names and _NAMELESS.intersection(self.verbs):
            raise ValueError(f"a rule with names never allows {', '.join(_NAMELESS)}: the request names no object")
        if self.namespace and not self.resource.namespaced:
            raise ValueError(f"{self.resource.name} belong to no namespace, so no rule about them does")

    @property
    def full_resource(self) -> str:
        """The resource and its subresource as rules name them."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural
