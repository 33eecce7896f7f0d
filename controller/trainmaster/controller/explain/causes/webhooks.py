"""Whose webhook it is that refuses something or does not answer, and what that says; for the cause Refused. Pure.

The API server names the webhook in its words. The configuration that has it tells which Service it calls and whose it
is; the endpoints of that Service whether anybody is there. Most users may read neither: then the words have to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.controller.conditions import BLOCKED
from trainmaster.controller.explain.causes.pods.evidence import labels_of, one_line
from trainmaster.controller.explain.findings import Evidence, ObjectReference, reference_to
from trainmaster.controller.explain.view import JobView, kubectl
from trainmaster.runtime.jsontree import JsonObject

_WEBHOOK: Final = re.compile(r'admission webhook "(?P<denied>[^"]+)" denied|failed calling webhook "(?P<failed>[^"]+)"')
_CONVERSION: Final = re.compile(r"conversion webhook for (\S+), Kind=\S+ failed")
_POLICY: Final = re.compile(r"ValidatingAdmissionPolicy '([^']+)'(?: with binding '[^']+')? denied request")
"""What kube-apiserver says."""

SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
_HELM_RELEASE, _HELM_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
_PART_OF, _NAME = "app.kubernetes.io/part-of", "app.kubernetes.io/name"

_WHY: Final[Sequence[tuple[re.Pattern[str], str]]] = tuple(
    (re.compile(pattern, re.IGNORECASE), text)
    for pattern, text in (
        (
            r"x509|certificate|tls:",
            "the API server does not trust its certificate: see who renews that, and the caBundle of the configuration",
        ),
        (
            r"deadline exceeded|i/o timeout|timed out|Client\.Timeout",
            "it is too slow, or a network policy or a firewall keeps the API server away",
        ),
        (r"no endpoints available|connection refused|no route", "nobody is there"),
        (r'service "[^"]+" not found|no such host', "its Service does not exist: was it uninstalled?"),
    )
)


@dataclass(frozen=True, slots=True)
class NamedWebhook:
    """A webhook that a text of the API server names."""

    name: str
    answers: bool
    """Whether it has refused something, or else could not be asked."""


@dataclass(frozen=True, slots=True)
class WebhookService:
    """What a webhook calls within the cluster."""

    namespace: str
    name: str
    path: str


def named_webhook(text: str) -> NamedWebhook | None:
    """Return the webhook that a text of the API server is about."""
    found = _WEBHOOK.search(text)
    return None if found is None else NamedWebhook(found["denied"] or found["failed"], answers=bool(found["denied"]))


def named_webhooks(view: JobView) -> frozenset[str]:
    """Return the names of the webhooks that keep something of a job from being made."""
    told = [str((view.conditions.get(BLOCKED) or {}).get("message") or "")]
    told += [event.note for event in view.events or () if event.is_warning]
    return frozenset(webhook.name for webhook in map(named_webhook, told) if webhook is not None)


def webhooks_called(configuration: JsonObject, name: str) -> Iterator[JsonObject]:
    """Return the webhooks of a name that a configuration has: one, unless somebody changed it by hand."""
    for webhook in configuration.get("webhooks") or ():
        if webhook.get("name") == name:
            yield webhook


def service_of(webhook: JsonObject) -> WebhookService | None:
    """Return the Service that a webhook calls; None if it calls something outside of the cluster."""
    service = (webhook.get("clientConfig") or {}).get("service")
    if not service:
        return None
    return WebhookService(str(service.get("namespace")), str(service.get("name")), str(service.get("path") or ""))


def webhook_evidence(view: JobView, text: str) -> Iterator[Evidence]:
    """Tell whose the webhook is that a text is about, what it calls, and whether anybody is there."""
    webhook = named_webhook(text)
    if webhook is None:
        return
    for configuration in view.webhooks or ():
        for found in webhooks_called(configuration, webhook.name):
            about = reference_to(configuration)
            service = service_of(found)
            url = str((found.get("clientConfig") or {}).get("url") or "")
            where = one_line(url) if service is None else f"Service {service.namespace}/{service.name}{service.path}"
            text = f"its webhook {webhook.name} calls {where}; failurePolicy {found.get('failurePolicy') or 'Fail'}"
            yield Evidence(about, f"{text}{_whose(about, configuration)}")
            if service is not None and not webhook.answers:
                yield from _endpoints(view, service)
            return


def _whose(about: ObjectReference, configuration: JsonObject) -> str:
    """Say to what a configuration belongs, by what Helm and the recommended labels tell."""
    annotations, labels = configuration["metadata"].get("annotations") or {}, labels_of(configuration)
    if release := annotations.get(_HELM_RELEASE):
        return f"; it belongs to the Helm release {release} in namespace {annotations.get(_HELM_NAMESPACE, '')}"
    owner = labels.get(_PART_OF) or labels.get(_NAME)
    return f"; it belongs to {owner}" if owner and owner != about.name else ""


def _endpoints(view: JobView, service: WebhookService) -> Iterator[Evidence]:
    if view.endpoint_slices is None:
        return
    place = service.namespace, service.name
    slices = [
        each
        for each in view.endpoint_slices
        if (each["metadata"].get("namespace"), labels_of(each).get(SERVICE_NAME_LABEL)) == place
    ]
    endpoints = [endpoint for each in slices for endpoint in each.get("endpoints") or ()]
    # Nobody says that one is not ready: then it is.
    ready = [each for each in endpoints if (each.get("conditions") or {}).get("ready") is not False]
    about = ObjectReference("Service", service.namespace, service.name)
    if not slices:
        yield Evidence(about, f"in namespace {service.namespace} has no endpoints, or does not exist")
    else:
        yield Evidence(about, f"in namespace {service.namespace} has {len(ready)} ready endpoints of {len(endpoints)}")


def webhook_advice(view: JobView, text: str) -> tuple[str, ...]:
    """Say what to do about a webhook, or a policy for admission, that a text is about; nothing if it is about none."""
    if policy := _POLICY.search(text):
        look = kubectl(view, "describe", "validatingadmissionpolicy", policy[1], namespaced=False)
        return (f"change what the policy {policy[1]} does not allow, or ask who set it: {look}",)
    if converted := _CONVERSION.search(text):
        return (
            f"the webhook that converts {converted[1]} does not answer: {_why(text)}",
            f"which Service it is, spec.conversion of its definition tells: {_definitions(view)}",
        )
    webhook = named_webhook(text)
    if webhook is None:
        return ()
    if webhook.answers:
        return (
            f"the webhook {webhook.name} does not allow it: change what it names, or ask who runs it",
            "the job is tried again by itself",
        )
    services = [
        service
        for configuration in view.webhooks or ()
        for each in webhooks_called(configuration, webhook.name)
        if (service := service_of(each)) is not None
    ]
    found = f"find it: {_configurations(view)}"
    if services:
        found = f"see its pods: {kubectl(view, 'get', 'pods', '-n', services[0].namespace, namespaced=False)}"
    return (f"the webhook {webhook.name} does not answer: {_why(text)}", found)


def _why(text: str) -> str:
    return next((why for pattern, why in _WHY if pattern.search(text)), "see its Service and its pods")


def _definitions(view: JobView) -> str:
    return kubectl(view, "get", "customresourcedefinitions", namespaced=False)


def _configurations(view: JobView) -> str:
    kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
    return kubectl(view, "get", kinds, "-o", "wide", namespaced=False)
