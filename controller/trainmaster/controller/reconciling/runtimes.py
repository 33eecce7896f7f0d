"""The reconciler of runtimes, of both kinds: clean-up after Trainer versions before 2.3.

Guarantee, F-2: the removal is bound to the resource version that was read, and doing it twice is harmless.

Those protected a runtime that was in use with a finalizer, so that it could not be deleted. TrainJobs keep a snapshot
of their runtime now; a finalizer that nobody else removes would keep the runtime forever.
"""

from __future__ import annotations

from typing import Final

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.controller.reconciling.outcomes import DONE, Outcome
from trainmaster.controller.resources import RUNTIMES
from trainmaster.runtime.api.constants import LEGACY_FINALIZER

POLICY_RULES: Final = tuple(
    PolicyRule(
        resource=resource,
        verbs=("patch",),
        needed_by=f"{resource.kind.lower()}_controller",
        reason="remove the finalizer that Trainer before 2.3 left, so that the runtime can be deleted",
    )
    for resource in RUNTIMES.values()
)


class RuntimeReconciler:
    """Removes the legacy finalizer from runtimes of one kind."""

    def __init__(self, client: KubeClient, resource: Resource, store: Store) -> None:
        self._client = client
        self._resource = resource
        self._store = store

    async def reconcile(self, key: str) -> Outcome:
        """Remove the finalizer from one runtime if it is there."""
        runtime = self._store.get(key)
        metadata = runtime["metadata"] if runtime else {}
        finalizers = metadata.get("finalizers") or []
        if LEGACY_FINALIZER in finalizers:
            kept = [finalizer for finalizer in finalizers if finalizer != LEGACY_FINALIZER]
            # The resource version guards against finalizers that others add meanwhile.
            patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": kept or None}}
            try:
                await self._client.patch(self._resource, metadata.get("namespace"), metadata["name"], patch)
            except NotFound:
                return DONE
        return DONE
