"""What of a configuration has no effect here, although the original knows it."""

from __future__ import annotations

from trainmaster.controller.configuration.fields import HTTP
from trainmaster.controller.configuration.types import Configuration


def notices(configuration: Configuration) -> list[str]:
    """Say what of a configuration has no effect here, although the original knows it; a sentence for each."""
    said = []
    management = configuration.cert_management
    if management.enable and "enable" in management.model_fields_set:
        said.append(
            "certManagement.enable: this manager makes no certificates; it serves those in webhook.certDir, "
            "which for instance cert-manager renews"
        )
    if "webhook_secret_name" in management.model_fields_set:
        said.append("certManagement.webhookSecretName: certificates are read from webhook.certDir, not from a Secret")
    if any(protocol != HTTP for protocol in configuration.tls.next_protos):
        said.append(f"tls.nextProtos: the servers speak {HTTP} and nothing else")
    return said
