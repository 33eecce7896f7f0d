"""The group admissionregistration.k8s.io: configurations of admission webhooks.

MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

- Every default is filled in at once, so that whoever calls the webhooks never has to know them.
- Refused is what keeps a webhook from being called, or calls it otherwise than it says; the schema has the rest.
- What the embedded cluster cannot do with a webhook is refused with 501 when the configuration is written, not when a
  request first meets it.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.fields import one_of
from trainmaster.devcluster.apiserver.registry.labels import label_selector
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.devcluster.apiserver.schema.cel.compiler import asks_authorizer, compile_condition
from trainmaster.devcluster.apiserver.schema.cel.program import CompilationFailed
from trainmaster.runtime.jsontree import JsonObject

REVIEW_VERSIONS = ("v1", "v1beta1")
"""The versions of AdmissionReview that a configuration may ask for; the first is the one that is spoken here."""
_OPERATIONS = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]
_SCOPES = ["*", "Cluster", "Namespaced"]
_LONGEST_TIMEOUT = 30


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
        return [
            problem
            for index, webhook in enumerate(webhooks)
            for problem in validate_webhook(webhook, f"webhooks[{index}]", mutating=self._mutating)
        ]


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


def validate_webhook(webhook: JsonObject, path: str, *, mutating: bool) -> Iterator[FieldError]:
    """Check one webhook, which has its defaults; `path` is where it stands."""
    # What is missing altogether is reported by the schema.
    for index, rule in enumerate(webhook.get("rules") or ()):
        yield from _validate_rule(rule, f"{path}.rules[{index}]")
    choices = {
        "failurePolicy": ["Fail", "Ignore"],
        "matchPolicy": ["Equivalent", "Exact"],
        "sideEffects": ["None", "NoneOnDryRun"],
        "reinvocationPolicy": ["IfNeeded", "Never"] if mutating else [],
    }
    for field, supported in choices.items():
        if field in webhook:
            yield from one_of(f"{path}.{field}", webhook[field], supported)
    seconds = webhook["timeoutSeconds"]
    if not 1 <= seconds <= _LONGEST_TIMEOUT:
        detail = f"the timeout value must be between 1 and {_LONGEST_TIMEOUT} seconds"
        yield FieldError(f"{path}.timeoutSeconds", "Invalid", seconds, detail)
    for field in ("namespaceSelector", "objectSelector"):
        yield from label_selector(f"{path}.{field}", webhook[field])
    if "clientConfig" in webhook:
        yield from _validate_client(webhook["clientConfig"], f"{path}.clientConfig")
    yield from _validate_conditions(webhook.get("matchConditions") or [], f"{path}.matchConditions")
    if "admissionReviewVersions" in webhook:
        yield from _validate_versions(webhook["admissionReviewVersions"], f"{path}.admissionReviewVersions")


def _validate_rule(rule: JsonObject, path: str) -> Iterator[FieldError]:
    for index, operation in enumerate(rule.get("operations") or ()):
        yield from one_of(f"{path}.operations[{index}]", operation, _OPERATIONS)
    yield from one_of(f"{path}.scope", rule["scope"], _SCOPES)


def _validate_client(client: JsonObject, path: str) -> Iterator[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield FieldError(path, "Required", None, "exactly one of url or service is required")
    elif url is not None and not url.startswith("https://"):
        detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
        yield FieldError(f"{path}.url", "Invalid", url.partition(":")[0], detail)


def _validate_conditions(conditions: list[JsonObject], path: str) -> Iterator[FieldError]:
    for index, condition in enumerate(conditions):
        expression, here = condition.get("expression", "").strip(), f"{path}[{index}].expression"
        if not expression:
            yield FieldError(here, "Required")
            continue
        try:
            compile_condition(expression)
        except CompilationFailed as error:
            wrong_type = str(error).startswith("cel expression must")
            detail = "must evaluate to bool" if wrong_type else f"compilation failed: {error}"
            yield FieldError(here, "Invalid", condition["expression"], detail)


def _validate_versions(versions: list[str], path: str) -> Iterator[FieldError]:
    supported = ", ".join(REVIEW_VERSIONS)
    if not versions:
        yield FieldError(path, "Required", None, f"must specify one of {supported}")
    elif not set(versions) & set(REVIEW_VERSIONS):
        yield FieldError(path, "Invalid", versions, f"must include at least one of {supported}")
