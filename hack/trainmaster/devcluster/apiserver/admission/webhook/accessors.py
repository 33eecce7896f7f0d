"""Accessors of configured webhooks, read once, and the rules by which they match requests. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from trainmaster.devcluster.apiserver.admission.request import AdmissionOperation
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.selectors import LabelSelector, label_selector_from_object
from trainmaster.runtime.jsontree import JsonObject

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
