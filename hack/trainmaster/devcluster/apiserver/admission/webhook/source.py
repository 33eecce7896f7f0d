"""The source of webhooks: those of all configurations, and which of them a request invokes, found by one look-up.

- It follows the store within the very write of a configuration: the next request sees the change.
- Without any configuration, and for kinds that no rule matches, a request costs one look-up in a dictionary.
- Webhooks are in the order of the names of their configurations, then as they are listed.
"""

from __future__ import annotations

from typing import NamedTuple

from trainmaster.devcluster.apiserver.admission.request import AdmissionOperation
from trainmaster.devcluster.apiserver.admission.webhook.accessors import (
    Phase,
    WebhookAccessor,
    is_exempt_configuration,
    webhook_accessors,
)
from trainmaster.devcluster.apiserver.registry import Kind, Registry
from trainmaster.devcluster.apiserver.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, GroupResource
from trainmaster.devcluster.apiserver.storage import Event, Store
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_PHASES: dict[GroupResource, Phase] = {MUTATING_WEBHOOKS: "mutating", VALIDATING_WEBHOOKS: "validating"}


class WebhookInvocation(NamedTuple):
    """A webhook whose rules match a request."""

    webhook: WebhookAccessor
    kind: Kind
    """The kind as which it wants to see the object."""


class WebhookSource:
    """The webhooks of both phases; closed by its owner."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._webhooks: dict[Phase, list[WebhookAccessor]] = {"mutating": [], "validating": []}
        self._found: dict[tuple[Phase, Kind, AdmissionOperation, str], tuple[WebhookInvocation, ...]] = {}
        self._revision = registry.revision
        for resource in _PHASES:
            self._load(resource)
        self._unsubscribe = [store.subscribe(resource, self._note) for resource in _PHASES]

    def close(self) -> None:
        """Stop following the store."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def find(
        self, phase: Phase, kind: Kind, operation: AdmissionOperation, subresource: str
    ) -> tuple[WebhookInvocation, ...]:
        """Return the webhooks whose rules match a request."""
        if not self._webhooks[phase]:
            return ()
        if self._revision != self._registry.revision:
            self._found.clear()
            self._revision = self._registry.revision
        key = (phase, kind, operation, subresource)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._match(phase, kind, operation, subresource)
        return found

    def _match(
        self, phase: Phase, kind: Kind, operation: AdmissionOperation, subresource: str
    ) -> tuple[WebhookInvocation, ...]:
        if is_exempt_configuration(kind):
            return ()
        others = [each for each in self._registry.kinds() if each.stored_as == kind.stored_as and each is not kind]
        return tuple(
            WebhookInvocation(webhook, wanted)
            for webhook in self._webhooks[phase]
            if (wanted := webhook.match(kind, operation, subresource, others)) is not None
        )

    def _note(self, event: Event) -> None:
        self._load(event.key.resource)

    def _load(self, resource: GroupResource) -> None:
        records = self._store.list(resource)  # sorted by name
        self._webhooks[_PHASES[resource]] = [
            webhook for record in records for webhook in webhook_accessors(record.object)
        ]
        self._found.clear()


def convert(obj: JsonObject, *, given: Kind, wanted: Kind) -> JsonObject:
    """Return an object in the form of another kind under which it is served."""
    if wanted is given:
        return obj
    stored = given.strategy.to_storage(copy_tree(obj))
    return {**wanted.strategy.from_storage(stored), "apiVersion": wanted.api_version, "kind": wanted.kind}
