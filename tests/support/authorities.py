"""Certificate authorities for tests: real certificates, made in a moment."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority that trusts everybody who asks.

    Args:
        name: What it calls itself.
        key_identifiers: Whether its certificates name keys, as RFC 5280 demands; those of many clusters do not.
    """

    def __init__(self, name: str = "authority", *, key_identifiers: bool = True) -> None:
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._key_identifiers = key_identifiers
        builder = _builder(self._name, self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        if key_identifiers:
            usage = x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            )
            identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
            builder = builder.add_extension(usage, critical=True).add_extension(identifier, critical=False)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(
        self, directory: Path, *, name: str = "server", valid: dt.timedelta = dt.timedelta(days=1)
    ) -> tuple[Path, Path]:
        """Write a certificate for `name`, 127.0.0.1 and localhost, and its key; return both paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = _builder(_name(name), self._name, key.public_key(), valid=valid).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        if self._key_identifiers:
            identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(identifier, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        paths = directory / f"{name}.crt", directory / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths

    def mount(self, directory: Path, *, name: str = "server", valid: dt.timedelta = dt.timedelta(days=1)) -> None:
        """Issue a certificate under the names that a mounted Secret has; the one before is replaced."""
        directory.mkdir(exist_ok=True)
        certificate, key = self.issue(directory, name=name, valid=valid)
        certificate.rename(directory / "tls.crt")
        key.rename(directory / "tls.key")
        (directory / "ca.crt").write_bytes(self.pem)

    def server_context(self, directory: Path, *, valid: dt.timedelta = dt.timedelta(days=1)) -> ssl.SSLContext:
        """Return the TLS context of a server that this authority vouches for."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(directory, valid=valid))
        return context


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, valid: dt.timedelta = dt.timedelta(days=1)
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=2))
        .not_valid_after(now + valid)
    )
