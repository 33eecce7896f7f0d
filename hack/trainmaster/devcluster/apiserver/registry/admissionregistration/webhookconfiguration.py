"""MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

- Every default is filled in at once, so that whoever calls the webhooks never has to know them.
- What the embedded cluster cannot do with a webhook is refused with 501 when the configuration is written, not when a
  request first meets it.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.admissionregistration.webhookconfiguration_validation import (
    REVIEW_VERSIONS,
    validate_webhook,
)
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.devcluster.apiserver.schema.cel.compiler import asks_authorizer
from trainmaster.runtime.jsontree import JsonObject


class WebhookConfigurationStrategy(Strategy):
    """Webhook configurations, mutating or validating."""

    has_generation = True
    allow_unconditional_update = False

    def __init__(self, *, mutating: bool) -> None:
        self._mutating = mutating

    def default(self, obj: JsonObject) -> None:
        """Fill in what the webhooks leave open."""
        for webhook in obj.get("webhooks") or ():
            webhook.setdefault("failurePolicy", "Fail")
            webhook.setdefault("matchPolicy", "Equivalent")
            webhook.setdefault("namespaceSelector", {})
            webhook.setdefault("objectSelector", {})
            webhook.setdefault("timeoutSeconds", 10)
            if self._mutating:
                webhook.setdefault("reinvocationPolicy", "Never")
            for rule in webhook.get("rules") or ():
                rule.setdefault("scope", "*")
            service = webhook.get("clientConfig", {}).get("service")
            if service is not None:
                service.setdefault("port", 443)

    def check_create(self, obj: JsonObject) -> None:
        """Refuse webhooks that could not be called as they want to be."""
        for webhook in obj.get("webhooks") or ():
            versions = webhook.get("admissionReviewVersions") or REVIEW_VERSIONS
            if REVIEW_VERSIONS[0] not in versions and REVIEW_VERSIONS[1] in versions:
                raise errors.not_implemented("admission webhooks that speak v1beta1 only")
            for condition in webhook.get("matchConditions") or ():
                if asks_authorizer(condition.get("expression", "")):
                    raise errors.not_implemented("matchConditions of admission webhooks that ask the authorizer")

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:  # noqa: ARG002 - the old one was checked
        """Refuse what a creation would be refused for."""
        self.check_create(obj)

    def is_new_generation(self, obj: JsonObject, old: JsonObject) -> bool:
        """Return whether the webhooks changed."""
        return bool(obj.get("webhooks") != old.get("webhooks"))

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check every webhook."""
        webhooks = obj.get("webhooks") or ()
        problems: list[FieldError] = []
        seen: set[str] = set()
        for index, webhook in enumerate(webhooks):
            path = f"webhooks[{index}]"
            problems += validate_webhook(webhook, path, mutating=self._mutating)
            name = webhook.get("name")
            if name and name in seen:
                problems.append(FieldError(f"{path}.name", "Duplicate", name))
            seen.add(name)
        return problems


def mutating_kind() -> Kind:
    """Return the kind of MutatingWebhookConfigurations as the API serves it."""
    return _kind("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", mutating=True)


def validating_kind() -> Kind:
    """Return the kind of ValidatingWebhookConfigurations as the API serves it."""
    return _kind("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", mutating=False)


def _kind(kind: str, plural: str, *, mutating: bool) -> Kind:
    return builtin_kind(
        "admissionregistration.k8s.io",
        kind,
        plural,
        strategy=WebhookConfigurationStrategy(mutating=mutating),
        namespaced=False,
        categories=("api-extensions",),
        columns=printers.WEBHOOK_CONFIGURATIONS,
    )
