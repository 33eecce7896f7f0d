"""Other leaders: whether somebody renews a lease of our name in another namespace, as a second installation would.

Guarantees:
- That is told and nothing else: whoever may write a lease somewhere must not be able to stop a manager of the cluster.
- A lease counts that was renewed between two looks: the clocks of others need not agree with ours.
- Each holder is told of once, for as long as it renews. Without the permission to look nobody is told.
"""

from __future__ import annotations

from typing import Any, Final

import structlog

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import LEASES
from trainmaster.controller.policyrule import PolicyRule

log = structlog.get_logger(__name__)

SECOND_LOOK: Final = 30.0
"""Seconds after the first one; every holder renews several times meanwhile."""

LOOK_EVERY: Final = 300.0
"""Seconds between all others."""

_MOST: Final = 100  # leases that are looked at
_MOST_TOLD: Final = 5  # of one look


def policy_rules(*, name: str) -> tuple[PolicyRule, ...]:
    """Return the right that looking needs: a list that is limited to one name by its field selector."""
    return (
        PolicyRule(
            resource=LEASES,
            verbs=("list",),
            needed_by="leader election",
            reason="warn of a second installation: look for leases of this name, and no other, in all namespaces",
            names=(name,),
            optional=True,
        ),
    )


class OtherLeaders:
    """Looks for leases of one name in all other namespaces."""

    def __init__(self, client: KubeClient, *, namespace: str, name: str, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._renewals: dict[str, Any] = {}
        """When each was renewed as of the last look, by namespace."""

        self._told: set[str] = set()

    async def run(self) -> None:
        """Look now and then until cancelled."""
        pause = SECOND_LOOK
        while True:
            await self._look()
            await self._clock.sleep(pause)
            pause = LOOK_EVERY

    async def _look(self) -> None:
        try:
            found = await self._client.list(LEASES, None, field_selector=f"metadata.name={self._name}", limit=_MOST)
        except KubeError as error:
            log.debug("cannot look for other leaders", error=str(error))
            return
        leases = {each["metadata"]["namespace"]: each.get("spec") or {} for each in found.get("items") or ()}
        leases.pop(self._namespace, None)
        held = {
            namespace: spec
            for namespace, spec in leases.items()
            if spec.get("holderIdentity") and self._renewals.get(namespace) not in {None, spec.get("renewTime")}
        }
        news = [
            f"{namespace}/{self._name} by {held[namespace]['holderIdentity']}" for namespace in held.keys() - self._told
        ]
        self._renewals = {namespace: spec.get("renewTime") for namespace, spec in leases.items()}
        self._told = set(held)
        if news:
            log.error(
                "another manager leads in this cluster, so that two write to the same TrainJobs",
                leases=sorted(news)[:_MOST_TOLD],
                hint="remove one of them; to replace one, install into its namespace, so that both have one lease; to "
                "have several, give each namespaces of its own by watchNamespaces",
            )
