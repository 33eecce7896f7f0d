"""Whom our webhook configurations have to trust: whose they are, decided from such an object, and the writes.

Guarantees:
- Only webhooks that call our own Service are ours. A configuration without any belongs to somebody else, for instance
  to an installation in another namespace, although the names are the same in all clusters: it is never written, and
  that is told once. One that cert-manager's cainjector serves, by its annotation, is left to that.
- A patch touches `caBundle` of our own webhooks and nothing else, and only of the version that was looked at.
- What somebody else makes of a bundle is put right at once. Who does it again and again is told of, once, by
  `managedFields`, and the pauses between our writes double up to `LONGEST_PAUSE`: two who disagree do not keep an API
  server busy.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from cryptography import x509

from trainmaster.controller.certificates.pki import read_certificates, to_pem
from trainmaster.controller.certificates.webhook_names import ConfigurationName
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

FIELD_MANAGER: Final = "trainer-ca-injector"

LONGEST_PAUSE: Final = 300.0
QUIET: Final = 3600.0
"""Seconds without an edit after which one is new."""

_JSON_PATCH: Final = "application/json-patch+json"

_CAINJECTOR: Final = (
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
)


@dataclass(frozen=True, slots=True)
class ServiceReference:
    """The Service of the manager."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class WebhookConfiguration:
    """One of our configurations, as it is."""

    name: ConfigurationName
    content: JsonObject
    service: ServiceReference

    @property
    def version(self) -> str:
        """Its resource version."""
        return str(self._metadata.get("resourceVersion", ""))

    @property
    def _metadata(self) -> JsonObject:
        metadata: JsonObject = self.content["metadata"]
        return metadata

    def ours(self) -> Iterator[tuple[int, JsonObject]]:
        """Yield the webhooks that call our Service, each with its place."""
        for place, webhook in enumerate(self.content.get("webhooks") or ()):
            client = webhook.get("clientConfig") or {}
            service = client.get("service") or {}
            if (service.get("namespace"), service.get("name")) == (self.service.namespace, self.service.name):
                yield place, client

    def problem(self) -> str | None:
        """Say why it is not for us to write; None if it is."""
        if any(True for _ in self.ours()):
            return None
        others = sorted({_callee(each) for each in self.content.get("webhooks") or ()}) or ["nobody"]
        return (
            f"{self.name} calls {', '.join(others)} and not the Service {self.service} of this manager: it belongs to "
            f"another installation and is left alone; set {self.name.switch} to false here, or "
            "certManagement.webhookServiceName to the name of our Service, or apply the manifests of this installation "
            "again"
        )

    def cainjector(self) -> str | None:
        """Say by which annotation cert-manager's cainjector serves it; None if it does not."""
        annotations = self._metadata.get("annotations") or {}
        found = next((f"{name}={annotations[name]}" for name in _CAINJECTOR if annotations.get(name)), None)
        return found and (
            f"{self.name} has the annotation {found}: its bundle is left to cert-manager; set certManagement.enable to "
            "false, or remove the annotation"
        )

    def bundles(self) -> list[list[x509.Certificate]]:
        """Return what each of our webhooks trusts."""
        return [_read(client.get("caBundle")) for _, client in self.ours()]

    def trusts(self, authorities: Sequence[x509.Certificate]) -> bool:
        """Tell whether each of our webhooks trusts exactly these."""
        return all(set(bundle) == set(authorities) for bundle in self.bundles())

    def patch(self, authorities: Sequence[x509.Certificate]) -> list[JsonObject]:
        """Return the JSON patch after which our webhooks trust these authorities; refused of any other version."""
        bundle = base64.b64encode(to_pem(authorities)).decode("ascii")
        return [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": self.version},
            *(
                {"op": "add", "path": f"/webhooks/{place}/clientConfig/caBundle", "value": bundle}
                for place, client in self.ours()
                if set(_read(client.get("caBundle"))) != set(authorities)
            ),
        ]

    def editors(self) -> list[str]:
        """Return who has set a `caBundle` that is there, other than ourselves."""
        found = {
            str(entry.get("manager"))
            for entry in self._metadata.get("managedFields") or ()
            if entry.get("manager") != FIELD_MANAGER and "f:caBundle" in _fields(entry.get("fieldsV1"))
        }
        return sorted(found)


@dataclass(slots=True)
class _Written:
    """What we made of one configuration."""

    authorities: frozenset[x509.Certificate]
    before: str
    """The version that we changed: until another one is seen, ours is the newest."""

    content: JsonObject
    moment: float
    edits: int = 0
    """How often somebody else has changed the bundle since it was quiet for long."""


class CAInjector:
    """Writes bundles."""

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._written: dict[ConfigurationName, _Written] = {}
        self._told: dict[ConfigurationName, str | None] = {}

    def ours(self, configurations: Sequence[WebhookConfiguration]) -> list[WebhookConfiguration]:
        """Return those that are for us to write, as they are by now."""
        found = []
        for seen in configurations:
            problem = seen.problem() or seen.cainjector()
            if problem is not None and self._told.get(seen.name) != problem:
                log.warning("the bundle of a webhook configuration is not ours to write", reason=problem)
            self._told[seen.name] = problem
            written = self._written.get(seen.name)
            if problem is None and written is not None and written.before == seen.version:
                found.append(WebhookConfiguration(seen.name, written.content, seen.service))
            elif problem is None:
                found.append(seen)
        return found

    async def inject(self, configuration: WebhookConfiguration, authorities: Sequence[x509.Certificate]) -> float:
        """Have a configuration trust these authorities; returns 0 when it does, else the seconds to wait before.

        Raises:
            KubeError: It was not written.
        """
        key = configuration.name
        resource, name = key.resource, key.name
        now = self._clock.monotonic()
        written, wanted = self._written.get(key), frozenset(authorities)
        edits = 0
        if written is not None and written.authorities == wanted and now - written.moment < QUIET:
            edits = written.edits + 1
            pause = min(LONGEST_PAUSE, 2.0 ** (edits - 1)) if edits > 1 else 0.0
            left = written.moment + pause - now
            if left > 0:
                return left
            if edits <= 2:
                log.warning(
                    "somebody has changed the bundle of a webhook configuration; it is put right"
                    if edits == 1
                    else "somebody keeps changing the bundle of a webhook configuration; it is put right, more seldom",
                    kind=resource.kind,
                    name=name,
                    by=configuration.editors(),
                    hint="exclude caBundle from what they manage, or set certManagement.enable to false",
                )
        content = await self._client.patch(
            resource,
            None,
            name,
            configuration.patch(authorities),
            content_type=_JSON_PATCH,
            field_manager=FIELD_MANAGER,
        )
        self._written[key] = _Written(wanted, configuration.version, content, now, edits)
        log.info(
            "a webhook configuration trusts our authorities", kind=resource.kind, name=name, count=len(authorities)
        )
        return 0.0


def _read(bundle: Any) -> list[x509.Certificate]:
    try:
        return read_certificates(base64.b64decode(bundle)) if isinstance(bundle, str) else []
    except (binascii.Error, ValueError):
        return []


def _callee(webhook: JsonObject) -> str:
    client = webhook.get("clientConfig") or {}
    service = client.get("service") or {}
    return f"the Service {service.get('namespace')}/{service.get('name')}" if service else str(client.get("url"))


def _fields(tree: Any) -> set[str]:
    """Return every field that a set of fields names, at whatever depth."""
    found: set[str] = set()
    left = [tree]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            found |= each.keys()
            left += each.values()
    return found
