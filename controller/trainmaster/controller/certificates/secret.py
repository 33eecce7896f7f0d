"""What the Secret of the certificates holds, in the original's keys, and what is wrong with it.

Guarantees:
- The first certificate of `ca.crt` is the authority that signs, and `ca.key` is its key; those behind it are trusted
  and sign nothing any more. So cert-controller reads it as well, and a manager of either kind goes on from the other's.
- An authority of another name is foreign: that library would not take it for its own either.
- What is wrong is told in words that hold nothing of the Secret itself.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

from cryptography import x509

from trainmaster.controller.certificates.pki import (
    CA_NAME,
    Authority,
    Unreadable,
    dns_names,
    is_authority,
    is_issued_by,
    is_valid_at,
    read_certificates,
    read_key,
    serves_tls,
)
from trainmaster.controller.job_fields import mapping
from trainmaster.runtime.jsontree import JsonObject

CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
_KEYS: Final = (CA_CERTIFICATE, CA_KEY, CERTIFICATE, KEY)


@dataclass(frozen=True)
class SecretData:
    """The four values; empty where there is none."""

    ca_certificate: bytes = b""
    ca_key: bytes = b""
    certificate: bytes = b""
    key: bytes = b""

    @classmethod
    def of(cls, secret: JsonObject) -> SecretData:
        """Read a Secret of the API; a value that is no Base64 is garbage like any other."""
        data = mapping(secret.get("data"))
        return cls(*(_decode(data.get(name)) for name in _KEYS))

    def __repr__(self) -> str:
        """Tell which values there are, and none of them."""
        present = {"ca_certificate": self.ca_certificate, "ca_key": self.ca_key, "certificate": self.certificate}
        return f"SecretData({', '.join(name for name, value in {**present, 'key': self.key}.items() if value)})"

    @cached_property
    def authorities(self) -> list[x509.Certificate]:
        """The authorities that are trusted, the one that signs first."""
        return read_certificates(self.ca_certificate)

    @cached_property
    def serving(self) -> x509.Certificate | None:
        """The serving certificate, if there is one."""
        return next(iter(read_certificates(self.certificate)), None)

    def signer(self) -> Authority:
        """Return the authority that signs.

        Raises:
            Unreadable: There is none.
        """
        if not self.authorities:
            raise Unreadable(f"there is no certificate in {CA_CERTIFICATE}")
        return Authority(self.authorities[0], read_key(self.ca_key, self.authorities[0]))

    def signer_problem(self, now: datetime) -> str | None:
        """Say why the authority cannot sign; None if it can."""
        if not self.ca_certificate and not self.ca_key:
            return "there is no authority yet"
        try:
            certificate = self.signer().certificate
        except Unreadable as error:
            return f"{CA_CERTIFICATE} and {CA_KEY} are no authority: {error}"
        if not is_authority(certificate):
            return f"the first certificate of {CA_CERTIFICATE} is not that of an authority"
        if CA_NAME not in dns_names(certificate):
            return f"the authority in {CA_CERTIFICATE} is foreign: it is not named {CA_NAME}"
        return _time_problem(certificate, now, what=f"the authority in {CA_CERTIFICATE}")

    @cached_property
    def pair_problem(self) -> str | None:
        """Why certificate and key are of no use to a server, whoever trusts them; None if they are of use.

        Checking a key of RSA takes tens of milliseconds.
        """
        if not self.certificate and not self.key:
            return "there is no serving certificate yet"
        if self.serving is None:
            return f"there is no certificate in {CERTIFICATE}"
        try:
            read_key(self.key, self.serving)
        except Unreadable as error:
            return f"{CERTIFICATE} and {KEY} are no pair: {error}"
        return None

    def serving_problem(self, names: Sequence[str], now: datetime) -> str | None:
        """Say why a client that trusts `ca.crt` would refuse the serving certificate; None if it would not.

        Args:
            names: The DNS names that servers are called by; the first one is needed.
        """
        problem = self.pair_problem
        if problem is not None or self.serving is None:
            return problem
        if names[0] not in dns_names(self.serving):
            return f"the certificate in {CERTIFICATE} is not for {names[0]}"
        if not serves_tls(self.serving):
            return f"the certificate in {CERTIFICATE} is not for TLS servers"
        if not any(is_valid_at(each, now) and is_issued_by(self.serving, each) for each in self.authorities):
            return f"no authority in {CA_CERTIFICATE} has signed the certificate in {CERTIFICATE}, or it has ended"
        return _time_problem(self.serving, now, what=f"the certificate in {CERTIFICATE}")


def encode(values: SecretData) -> dict[str, str]:
    """Write the four values as `data` of a Secret."""
    return {name: base64.b64encode(value).decode("ascii") for name, value in zip(_KEYS, astuple(values), strict=True)}


def _decode(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return b""


def _time_problem(certificate: x509.Certificate, now: datetime, *, what: str) -> str | None:
    if is_valid_at(certificate, now):
        return None
    if now < certificate.not_valid_before_utc:
        return f"{what} begins only at {certificate.not_valid_before_utc.isoformat()}"
    return f"{what} has ended at {certificate.not_valid_after_utc.isoformat()}"
