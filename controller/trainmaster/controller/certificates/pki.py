"""Making and reading certificates, in the forms of cert-controller (open-policy-agent), which the original uses.

Guarantees:
- What is made here that library takes for its own: an authority that carries its own name as a DNS name, an RSA key of
  it in PKCS #1, serving certificates for TLS servers.
- What it made is read here, serial numbers of zero included.
- Every certificate begins a day before it was made: verifiers whose clocks are behind accept it at once.
- A serving certificate never outlives its authority.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_NAME: Final = "kubeflow-trainer-ca"
CA_ORGANIZATION: Final = "kubeflow-trainer"
"""Those of the original: by them each knows an authority of the other for its own."""

CA_VALIDITY: Final = timedelta(days=3650)
SERVING_VALIDITY: Final = timedelta(days=365)
"""Those of cert-controller."""

BACKDATE: Final = timedelta(days=1)

_KEY_SIZE: Final = 2048
_EXPONENT: Final = 65537
_COMMON_NAME_AT_MOST: Final = 64

_BLOCK: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+?-----END CERTIFICATE-----")


class Unreadable(ValueError):
    """A certificate or a key cannot be read; the message says which, and nothing of what is in it."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority that can sign."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, each as PEM."""

    certificate: bytes
    key: bytes


def new_authority(*, now: datetime) -> tuple[Authority, KeyPair]:
    """Make an authority; returns it, and as it is written down."""
    key = _new_key()
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, CA_ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, CA_NAME),
        ]
    )
    certificate = (
        _builder(name, name, key.public_key(), now=now, until=now + CA_VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(CA_NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key), KeyPair(to_pem([certificate]), _key_pem(key))


def new_serving_pair(authority: Authority, names: Sequence[str], *, now: datetime) -> KeyPair:
    """Make a serving certificate for some DNS names, the most important one first."""
    key = _new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:_COMMON_NAME_AT_MOST])])
    until = min(now + SERVING_VALIDITY, authority.certificate.not_valid_after_utc)
    certificate = (
        _builder(subject, authority.certificate.subject, key.public_key(), now=now, until=until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return KeyPair(to_pem([certificate]), _key_pem(key))


def read_certificates(pem: bytes) -> list[x509.Certificate]:
    """Read the certificates among some bytes, in their order, each once; whatever else is there is passed over."""
    found: dict[x509.Certificate, None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # serial numbers of zero: cert-controller's
        for block in _BLOCK.findall(pem):
            try:
                found[x509.load_pem_x509_certificate(block)] = None
            except ValueError:
                continue
    return list(found)


def read_key(pem: bytes, certificate: x509.Certificate) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey:
    """Read a private key that belongs to a certificate.

    Raises:
        Unreadable: It is none, or does not belong to it.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except Exception:  # the library documents several errors, and garbage has one remedy
        raise Unreadable("the key cannot be read") from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise Unreadable("the key is neither of RSA nor of an elliptic curve")
    if key.public_key() != certificate.public_key():
        raise Unreadable("the key does not belong to the certificate")
    return key


def is_authority(certificate: x509.Certificate) -> bool:
    """Tell whether a certificate may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def dns_names(certificate: x509.Certificate) -> list[str]:
    """Return the DNS names that a certificate is good for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return names.get_values_for_type(x509.DNSName)


def serves_tls(certificate: x509.Certificate) -> bool:
    """Tell whether a certificate may be that of a TLS server."""
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    except ValueError:
        return False
    return ExtendedKeyUsageOID.SERVER_AUTH in usages or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Tell whether an authority has signed a certificate, whatever the time."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_valid_at(certificate: x509.Certificate, moment: datetime) -> bool:
    """Tell whether a moment lies between the ends of a certificate."""
    return certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc


def to_pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """Write certificates one after the other."""
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(_EXPONENT, _KEY_SIZE)


def _key_pem(key: rsa.RSAPrivateKey) -> bytes:
    """Write a key in PKCS #1, the only form that cert-controller reads an authority's in."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPublicKey, *, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(until)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )
