"""Certificates of the embedded cluster: a private authority and one server certificate, made once per state directory.

Guarantees:
- every file is readable by its owner only, from the moment it exists;
- a set that is incomplete, unreadable, about to expire or made for other host names is replaced as a whole;
- the key of the authority is thrown away after signing: nobody can issue another certificate that clients trust.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DEFAULT_HOSTS = (
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)

_LIFETIME = timedelta(days=365)
# A cluster on a laptop may run for weeks without a restart; a start that finds less than this left renews the set.
_RENEW_BEFORE = timedelta(days=90)
# Machines whose clocks run a little behind must accept a certificate made this minute.
_CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ServerCertificates:
    """Where the files of one set are, and the authority that clients have to trust."""

    authority: Path
    certificate: Path
    key: Path

    @property
    def authority_pem(self) -> bytes:
        """The authority's certificate as PEM, for kubeconfig files and `kube-root-ca.crt`."""
        return self.authority.read_bytes()

    def server_context(self) -> ssl.SSLContext:
        """Build the TLS context of the API server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        return context


def ensure_certificates(directory: Path, *, now: datetime, hosts: Sequence[str] = DEFAULT_HOSTS) -> ServerCertificates:
    """Return the set in the directory, after making a new one if there is none that can be used."""
    files = ServerCertificates(
        authority=directory / "ca.crt", certificate=directory / "server.crt", key=directory / "server.key"
    )
    if not _usable(files, now=now, hosts=hosts):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority, certificate, key = _issue(now=now, hosts=hosts)
        for path, content in ((files.key, key), (files.certificate, certificate), (files.authority, authority)):
            write_private(path, content)
    return files


def write_private(path: Path, content: bytes) -> None:
    """Replace a file atomically with one that only its owner can read."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp creates with mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _usable(files: ServerCertificates, *, now: datetime, hosts: Sequence[str]) -> bool:
    try:
        authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        certificate.verify_directly_issued_by(authority)
        files.server_context()  # fails when the key does not belong to the certificate
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # damage of any kind has one remedy: a new set
        return False
    fresh = min(authority.not_valid_after_utc, certificate.not_valid_after_utc) - now > _RENEW_BEFORE
    begun = max(authority.not_valid_before_utc, certificate.not_valid_before_utc) <= now
    return fresh and begun and set(names) >= set(map(_general_name, hosts))


def _issue(*, now: datetime, hosts: Sequence[str]) -> tuple[bytes, bytes, bytes]:
    authority_key = ec.generate_private_key(ec.SECP256R1())
    server_key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainmaster-cluster-ca")])
    authority = (
        _builder(issuer, issuer, authority_key.public_key(), now=now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "trainmaster-cluster")])
    certificate = (
        _builder(subject, issuer, server_key.public_key(), now=now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_general_name, hosts))), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(server_key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    key = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = serialization.Encoding.PEM
    return authority.public_bytes(pem), certificate.public_bytes(pem), key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
