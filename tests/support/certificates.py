"""Certificates of a manager: Secrets as they are found."""

import base64
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from unittest import mock

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

from trainmaster.controller.certificates import pki
from trainmaster.controller.certificates.pki import (
    Authority,
    KeyPair,
    new_authority,
    new_serving_pair,
    read_certificates,
)
from trainmaster.controller.certificates.secret import SecretData

SERVICE = "kubeflow-trainer-controller-manager"


def names(namespace: str = "kubeflow-system") -> list[str]:
    """The names of the servers, as the manager makes its certificates for."""
    return [f"{SERVICE}.{namespace}.svc", f"{SERVICE}.{namespace}.svc.cluster.local"]


@contextmanager
def quick_keys() -> Iterator[None]:
    """Make keys of elliptic curves during the block, which take no time; cert-controller would not read them."""

    def new_key() -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    with mock.patch.object(pki, "_new_key", new_key):
        yield


def go_secret(*, now: datetime, namespace: str = "kubeflow-system") -> SecretData:
    """What a manager in Go has written: by cert-controller, an hour back, for one name and with serial number zero."""
    key = _rsa_key()
    authority = _with_serial_number_zero(_authority(key, now=now), key)
    pem = b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(authority) + b"-----END CERTIFICATE-----\n"
    [certificate] = read_certificates(pem)
    pair = new_serving_pair(Authority(certificate, key), names(namespace)[:1], now=now)
    return SecretData(certificate.public_bytes(serialization.Encoding.PEM), _pkcs1(key), pair.certificate, pair.key)


@functools.cache
def _rsa_key() -> rsa.RSAPrivateKey:
    """One key for all, since it takes a tenth of a second."""
    return rsa.generate_private_key(65537, 2048)


def _authority(key: rsa.RSAPrivateKey, *, now: datetime) -> x509.Certificate:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "kubeflow-trainer"),
            x509.NameAttribute(NameOID.COMMON_NAME, "kubeflow-trainer-ca"),
        ]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("kubeflow-trainer-ca")]), critical=False)
        .sign(key, hashes.SHA256())
    )


def _with_serial_number_zero(certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> bytes:
    """Sign a certificate again with the number that the library refuses to give: nothing else changes its length."""
    body = certificate.tbs_certificate_bytes
    changed = body.replace(b"\x02\x01\x01", b"\x02\x01\x00", 1)
    assert changed != body
    signature = key.sign(changed, padding.PKCS1v15(), hashes.SHA256())
    whole = certificate.public_bytes(serialization.Encoding.DER)
    return whole.replace(body, changed).replace(certificate.signature, signature)


def _pkcs1(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def good_secret(now: datetime | None = None, *, of: Sequence[str] = ()) -> SecretData:
    """An authority and a certificate that it has just signed, for the servers or for other names."""
    now = now or datetime.now(UTC)
    authority, made = new_authority(now=now)
    return written(made, new_serving_pair(authority, of or names(), now=now))


def written(authority: KeyPair, pair: KeyPair | None = None) -> SecretData:
    """A Secret of these."""
    return SecretData(authority.certificate, authority.key, *((pair.certificate, pair.key) if pair else (b"", b"")))
