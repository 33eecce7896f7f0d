"""Checks of the certificate of the webhooks: the Secret, and whether the API server trusts what is in it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from trainmaster.controller.cli.doctor.cluster import OUR_WEBHOOKS
from trainmaster.controller.cli.doctor.facts import AGAIN, Facts, Finding, fail, ok, pod_spec, warn
from trainmaster.runtime.jsontree import JsonObject

_SOON: Final = timedelta(days=7)


def check_certificates(facts: Facts) -> Iterator[Finding]:
    """The certificate: is it there, valid, for the Service, and trusted by the webhook configurations?"""
    management, deployment, secret = facts.target.configuration.cert_management, facts.deployment, facts.secret.value
    name = f"{facts.target.namespace}/{management.webhook_secret_name}"
    if secret is None and deployment is not None and management.enable:
        yield fail(f"the Secret {name} is gone: the manager cannot keep a certificate, and may not create it", AGAIN)
        return
    if secret is None and deployment is not None and _mounts(deployment, management.webhook_secret_name):
        advice = "see why whoever issues the certificate does not write it"
        yield fail(f"the Secret {name} is gone: pods need it", advice)
        return
    if not management.enable:
        yield ok("certManagement.enable is false: certificates come from elsewhere, into webhook.certDir")
    if secret is None:
        if management.enable:
            yield ok(f"the Secret {name} is not there yet; the manifests bring it, and the manager fills it")
        return
    data = decoded(secret)
    if not data.get("tls.crt"):
        if deployment is not None and management.enable:
            yield fail(f"the Secret {name} has no certificate", "see in the log of the manager why it makes none")
        else:
            yield ok(f"the Secret {name} has no certificate yet; the manager makes one")
        return
    # One that our manager has let expire is as bad as one that nobody renews.
    renewed = management.enable and deployment is None
    try:
        certificate = x509.load_pem_x509_certificate(data["tls.crt"])
        key = load_pem_private_key(data.get("tls.key", b""), None)
        fits = key.public_key() == certificate.public_key()
    except ValueError as error:
        yield _bad(f"the Secret {name} holds no pair of certificate and key: {error}", renewed=renewed)
        return
    if not fits:
        yield _bad(f"in the Secret {name} tls.key is not the key of tls.crt", renewed=renewed)
        return
    yield from _check_certificate(facts, certificate, name, renewed=renewed)
    yield from _check_trust(facts, data, name)


def _mounts(deployment: JsonObject, secret: str) -> bool:
    volumes = pod_spec(deployment).get("volumes") or []
    return secret in {(volume.get("secret") or {}).get("secretName") for volume in volumes}


def _check_certificate(facts: Facts, certificate: x509.Certificate, name: str, *, renewed: bool) -> Iterator[Finding]:
    until, now = certificate.not_valid_after_utc, facts.target.now
    service = facts.target.configuration.cert_management.webhook_service_name
    host = f"{service}.{facts.target.namespace}.svc"
    names = _names(certificate)
    if until < now:
        yield _bad(f"the certificate in the Secret {name} has expired on {until:%Y-%m-%d}", renewed=renewed)
    elif until < now + _SOON and not renewed:
        yield warn(f"the certificate in the Secret {name} expires on {until:%Y-%m-%d}", "renew it")
    elif host not in names:
        yield _bad(
            f"the certificate in the Secret {name} is not for {host}, but for {', '.join(names)}", renewed=renewed
        )
    else:
        yield ok(f"the certificate in the Secret {name} is for {host}, until {until:%Y-%m-%d}")


def _check_trust(facts: Facts, data: dict[str, bytes], name: str) -> Iterator[Finding]:
    if facts.deployment is not None:
        return  # of those that are registered `health` tells
    for configuration in facts.webhooks.value:
        own = configuration["metadata"]["name"]
        if own in OUR_WEBHOOKS and not trusts(configuration, data):
            yield warn(
                f"{own} does not trust the authority in the Secret {name}: its caBundle is another one",
                "the manager that leads corrects that within moments; without one, TrainJobs cannot be written",
            )


def _bad(message: str, *, renewed: bool) -> Finding:
    """A certificate that cannot be used: the manager replaces one of its own."""
    if renewed:
        return warn(message, "the manager replaces it when it leads")
    return fail(message, "put a good one there; webhooks that do not answer refuse every TrainJob")


def trusts(configuration: JsonObject, data: dict[str, bytes]) -> bool:
    """Tell whether each webhook of a configuration has a bundle by which a certificate of a Secret is trusted."""
    served, authorities = _certificates(data.get("tls.crt", b"")), _certificates(data.get("ca.crt", b""))
    return all(
        any(_vouches(each, served, authorities) for each in _bundle(webhook))
        for webhook in configuration.get("webhooks") or []
    )


def _vouches(trusted: x509.Certificate, served: set[x509.Certificate], authorities: set[x509.Certificate]) -> bool:
    if trusted in served | authorities:
        return True
    for each in served:
        try:
            each.verify_directly_issued_by(trusted)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def _bundle(webhook: JsonObject) -> set[x509.Certificate]:
    try:
        return _certificates(base64.b64decode((webhook.get("clientConfig") or {}).get("caBundle") or ""))
    except ValueError:
        return set()


def decoded(secret: JsonObject) -> dict[str, bytes]:
    """Return the data of a Secret."""
    found = {}
    for key, value in (secret.get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value or "")
        except (binascii.Error, ValueError):
            found[key] = b""
    return found


def _certificates(pem: bytes) -> set[x509.Certificate]:
    try:
        return set(x509.load_pem_x509_certificates(pem))
    except ValueError:
        return set()


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return extension.value.get_values_for_type(x509.DNSName)
