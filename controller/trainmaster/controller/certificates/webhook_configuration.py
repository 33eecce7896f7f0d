"""What our webhook configurations have to trust, and whose they are: pure functions of such an object.

Guarantees:
- Only webhooks that call our own Service are ours. A configuration without any belongs to somebody else, for instance
  to an installation in another namespace, although the names are the same in all clusters: it is never written.
- A configuration that cert-manager's cainjector serves, by its annotation, is left to that.
- A patch touches `caBundle` of our own webhooks and nothing else, and only of the version that was looked at.
- Who has set another bundle is known by `managedFields`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509

from trainmaster.controller.certificates.pki import read_certificates, to_pem
from trainmaster.controller.certificates.webhook_names import ConfigurationName
from trainmaster.runtime.jsontree import JsonObject

FIELD_MANAGER: Final = "trainer-ca-injector"

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
        """Return the annotation by which cert-manager's cainjector serves it."""
        annotations = self._metadata.get("annotations") or {}
        return next((f"{name}={annotations[name]}" for name in _CAINJECTOR if annotations.get(name)), None)

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
