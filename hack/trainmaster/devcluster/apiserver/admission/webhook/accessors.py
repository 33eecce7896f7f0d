"""Accessors of configured webhooks, read once, and their source: which of them a request invokes, by one look-up.

- The source follows the store within the very write of a configuration: the next request sees the change.
- Without any configuration, and for kinds that no rule matches, a request costs one look-up in a dictionary.
- Webhooks are in the order of the names of their configurations, then as they are listed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from trainmaster.devcluster.apiserver.registry import Kind, Registry
from trainmaster.devcluster.apiserver.registry.generic.admission_request import AdmissionOperation
from trainmaster.devcluster.apiserver.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, GroupResource
from trainmaster.devcluster.apiserver.selectors import LabelSelector, label_selector_from_object
from trainmaster.devcluster.apiserver.storage import Event, Store
from trainmaster.runtime.jsontree import JsonObject, copy_tree

Phase: TypeAlias = Literal["mutating", "validating"]


@dataclass(frozen=True, slots=True)
class RuleMatcher:
    """Operations on resources."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    """Pairs of resource and subresource; the subresource of a plain resource is empty."""

    scope: str

    def matches(self, kind: Kind, operation: AdmissionOperation, subresource: str) -> bool:
        """Return whether a request matches."""
        return (
            _named(self.operations, operation)
            and _named(self.groups, kind.group)
            and _named(self.versions, kind.version)
            and self.scope in ("*", "Namespaced" if kind.namespaced else "Cluster")
            and any(resource in ("*", kind.plural) and part in ("*", subresource) for resource, part in self.resources)
        )


@dataclass(frozen=True, slots=True)
class ServiceReference:
    """A service that answers for a webhook."""

    namespace: str
    name: str
    port: int

    @property
    def host(self) -> str:
        """The name in the cluster, which the certificate has to be for."""
        return f"{self.name}.{self.namespace}.svc"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAccessor:
    """One webhook of one configuration."""

    id: tuple[str, str]
    """The names of the configuration and of the webhook in it."""

    name: str
    rules: tuple[RuleMatcher, ...]
    exact: bool
    """Whether the rules match only their very group and version, not the same objects under other names."""

    namespace_selector: LabelSelector
    object_selector: LabelSelector
    url: str
    """As it is called; with a service the name of the service stands for the host."""

    service: ServiceReference | None
    authority: bytes
    """The bundle of certificates to trust; without one it is up to the system."""

    ignores_failure: bool
    timeout: int
    harmless_dry: bool
    """Whether it may be called for a request that must not have any effect."""

    reinvocable: bool
    conditions: tuple[str, ...]

    def match(self, kind: Kind, operation: AdmissionOperation, subresource: str, others: Iterable[Kind]) -> Kind | None:
        """Return the kind as which the webhook wants to see a request, None if it does not want to see it.

        `others` are the other kinds under which the same objects are served.
        """
        if any(rule.matches(kind, operation, subresource) for rule in self.rules):
            return kind
        if not self.exact:
            for rule in self.rules:
                for other in others:
                    if rule.matches(other, operation, subresource):
                        return other
        return None


def webhook_accessors(configuration: JsonObject) -> list[WebhookAccessor]:
    """Read the webhooks of a stored configuration, which is valid and has all its defaults."""
    name = configuration["metadata"]["name"]
    return [_accessor(name, webhook) for webhook in configuration.get("webhooks") or ()]


def is_exempt_configuration(kind: Kind) -> bool:
    """Return whether webhooks never see a kind: nobody could remove a broken configuration otherwise."""
    return kind.group == "admissionregistration.k8s.io"


def _accessor(configuration: str, webhook: JsonObject) -> WebhookAccessor:
    client = webhook["clientConfig"]
    url, service = client.get("url", ""), None
    if described := client.get("service"):
        service = ServiceReference(described["namespace"], described["name"], described["port"])
        path = described.get("path") or "/"
        url = f"https://{service.host}:{service.port}{path}"
    return WebhookAccessor(
        id=(configuration, webhook["name"]),
        name=webhook["name"],
        rules=tuple(map(_rule_matcher, webhook.get("rules") or ())),
        exact=webhook["matchPolicy"] == "Exact",
        namespace_selector=label_selector_from_object(webhook["namespaceSelector"]),
        object_selector=label_selector_from_object(webhook["objectSelector"]),
        url=url,
        service=service,
        authority=_bundle(client.get("caBundle") or ""),
        ignores_failure=webhook["failurePolicy"] == "Ignore",
        timeout=webhook["timeoutSeconds"],
        harmless_dry=webhook["sideEffects"] in ("None", "NoneOnDryRun"),
        reinvocable=webhook.get("reinvocationPolicy") == "IfNeeded",
        conditions=tuple(condition["expression"] for condition in webhook.get("matchConditions") or ()),
    )


def _rule_matcher(rule: JsonObject) -> RuleMatcher:
    resources = tuple((resource, part) for resource, _, part in (text.partition("/") for text in rule["resources"]))
    return RuleMatcher(
        operations=frozenset(rule["operations"]),
        groups=frozenset(rule["apiGroups"]),
        versions=frozenset(rule["apiVersions"]),
        resources=resources,
        scope=rule["scope"],
    )


def _named(names: frozenset[str], name: str) -> bool:
    return name in names or "*" in names


def _bundle(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


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
