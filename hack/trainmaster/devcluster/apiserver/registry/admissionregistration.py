"""The group admissionregistration.k8s.io: configurations of admission webhooks.

MutatingWebhookConfigurations and ValidatingWebhookConfigurations.

- Every default is filled in at once, so that whoever calls the webhooks never has to know them.
- What the embedded cluster cannot do with a webhook is refused with 501 when the configuration is written, not when a
  request first meets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError, unsupported
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.labels import label_selector
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.devcluster.apiserver.schema.cel.compiler import asks_authorizer, compile_condition
from trainmaster.devcluster.apiserver.schema.cel.program import CompilationFailed
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label_1035, dns_subdomain, qualified_name

REVIEW_VERSIONS = ("v1", "v1beta1")
"""The versions of AdmissionReview that a configuration may ask for; the first is the one that is spoken here."""
_OPERATIONS = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]
_SCOPES = ["*", "Cluster", "Namespaced"]
_URL_FORM = "; desired format: https://host[/path]"
_LONGEST_TIMEOUT = 30
_FEWEST_LABELS = 3
_MOST_CONDITIONS = 64


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


def validate_webhook(webhook: JsonObject, path: str, *, mutating: bool) -> Iterator[FieldError]:
    """Check one webhook, which has its defaults; `path` is where it stands."""
    # What is missing altogether is reported by the schema.
    if "name" in webhook:
        yield from _validate_name(webhook["name"], f"{path}.name")
    for index, rule in enumerate(webhook.get("rules") or ()):
        yield from _validate_rule(rule, f"{path}.rules[{index}]")
    choices = {
        "failurePolicy": ["Fail", "Ignore"],
        "matchPolicy": ["Equivalent", "Exact"],
        "sideEffects": ["None", "NoneOnDryRun"],
        "reinvocationPolicy": ["IfNeeded", "Never"] if mutating else [],
    }
    for field, supported in choices.items():
        if field in webhook and webhook[field] not in supported:
            yield unsupported(f"{path}.{field}", webhook[field], supported)
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


def _validate_name(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield FieldError(path, "Required")
    elif problems := dns_subdomain(name):
        yield from (FieldError(path, "Invalid", name, problem) for problem in problems)
    elif len(name.split(".")) < _FEWEST_LABELS:
        yield FieldError(path, "Invalid", name, "should be a domain with at least three segments separated by dots")


def _validate_rule(rule: JsonObject, path: str) -> Iterator[FieldError]:
    operations: list[str] = rule.get("operations") or []
    yield from _validate_wildcards(operations, f"{path}.operations", "operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield unsupported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    yield from _validate_wildcards(rule.get("apiGroups"), f"{path}.apiGroups", "API groups")
    versions: list[str] = rule.get("apiVersions") or []
    yield from _validate_wildcards(versions, f"{path}.apiVersions", "API versions")
    for index, version in enumerate(versions):
        if not version:
            yield FieldError(f"{path}.apiVersions[{index}]", "Required")
    yield from _validate_resources(rule.get("resources") or [], f"{path}.resources")
    if rule["scope"] not in _SCOPES:
        yield unsupported(f"{path}.scope", rule["scope"], _SCOPES)


def _validate_wildcards(values: list[str] | None, path: str, what: str) -> Iterator[FieldError]:
    if not values:
        yield FieldError(path, "Required")
    elif len(values) > 1 and "*" in values:
        yield FieldError(path, "Invalid", values, f"if '*' is present, must not specify other {what}")


def _validate_resources(resources: list[str], path: str) -> Iterator[FieldError]:
    if not resources:
        yield FieldError(path, "Required")
    whole: set[str] = set()  # resources of which every subresource is meant
    everywhere: set[str] = set()  # subresources that are meant on every resource
    for index, text in enumerate(resources):
        here = f"{path}[{index}]"
        if not text:
            yield FieldError(here, "Required")
        resource, slash, subresource = text.partition("/")
        if not slash:
            continue
        if resource in whole:
            yield FieldError(here, "Invalid", text, f"if '{resource}/*' is present, must not specify {text}")
        if subresource in everywhere:
            yield FieldError(here, "Invalid", text, f"if '*/{subresource}' is present, must not specify {text}")
        if subresource == "*":
            whole.add(resource)
        if resource == "*":
            everywhere.add(subresource)
    if "*/*" in resources and len(resources) > 1:
        yield FieldError(path, "Invalid", resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and any(text != "*" and "/" not in text for text in resources):
        detail = "if '*' is present, must not specify other resources without subresources"
        yield FieldError(path, "Invalid", resources, detail)


def _validate_client(client: JsonObject, path: str) -> Iterator[FieldError]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield FieldError(path, "Required", None, "exactly one of url or service is required")
    elif url is not None:
        yield from _validate_url(url, f"{path}.url")
    elif service is not None:
        yield from _validate_service(service, f"{path}.service")


def _validate_url(url: str, path: str) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
        host, _ = parts.netloc, parts.port
    except ValueError as error:
        yield FieldError(path, "Required", None, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    user, at, host = host.rpartition("@")
    if parts.scheme != "https":
        yield FieldError(path, "Invalid", parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not host:
        yield FieldError(path, "Invalid", "", f"host must be provided{_URL_FORM}")
    if at:
        yield FieldError(path, "Invalid", user, "user information is not permitted in the URL")
    if parts.fragment:
        yield FieldError(path, "Invalid", parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield FieldError(path, "Invalid", parts.query, "query parameters are not permitted in the URL")


def _validate_service(service: JsonObject, path: str) -> Iterator[FieldError]:
    for field in ("name", "namespace"):
        if service.get(field) == "":
            yield FieldError(f"{path}.{field}", "Required", None, f"service {field} is required")
    port = service["port"]
    if not 1 <= port <= 65535:
        yield FieldError(f"{path}.port", "Invalid", port, "port is not valid: must be between 1 and 65535, inclusive")
    url_path: str = service.get("path") or "/"
    here = f"{path}.path"
    if url_path == "/":
        return
    if not url_path.startswith("/"):
        yield FieldError(here, "Invalid", url_path, "must start with a '/'")
    for index, step in enumerate(url_path[1:].removesuffix("/").split("/")):
        if not step:
            yield FieldError(here, "Invalid", url_path, f"segment[{index}] may not be empty")
        else:
            for problem in dns_subdomain(step):
                yield FieldError(here, "Invalid", url_path, f"segment[{index}]: {problem}")


def _validate_conditions(conditions: list[JsonObject], path: str) -> Iterator[FieldError]:
    if len(conditions) > _MOST_CONDITIONS:
        detail = f"must have at most {_MOST_CONDITIONS} items"
        yield FieldError(path, "TooMany", len(conditions), detail)
        return
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        name, expression = condition.get("name", ""), condition.get("expression", "").strip()
        here = f"{path}[{index}]"
        if not expression:
            yield FieldError(f"{here}.expression", "Required")
        else:
            try:
                compile_condition(expression)
            except CompilationFailed as error:
                text = str(error)
                wrong_type = text.startswith("cel expression must")
                detail = "must evaluate to bool" if wrong_type else f"compilation failed: {text}"
                yield FieldError(f"{here}.expression", "Invalid", condition["expression"], detail)
        if not name:
            yield FieldError(f"{here}.name", "Required")
        elif problems := qualified_name(name):
            yield from (FieldError(f"{here}.name", "Invalid", name, problem) for problem in problems)
        elif name in seen:
            yield FieldError(f"{here}.name", "Duplicate", name)
        seen.add(name)


def _validate_versions(versions: list[str], path: str) -> Iterator[FieldError]:
    supported = ", ".join(REVIEW_VERSIONS)
    if not versions:
        yield FieldError(path, "Required", None, f"must specify one of {supported}")
        return
    counted = Counter[str]()
    for index, version in enumerate(versions):
        counted[version] += 1
        if counted[version] > 1:
            yield FieldError(f"{path}[{index}]", "Invalid", version, "duplicate version")
        else:
            yield from (FieldError(f"{path}[{index}]", "Invalid", version, text) for text in dns_label_1035(version))
    if not set(versions) & set(REVIEW_VERSIONS):
        yield FieldError(path, "Invalid", versions, f"must include at least one of {supported}")
