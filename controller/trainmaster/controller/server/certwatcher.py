"""TLS of the servers of the manager: certificates that change while they are served, with versions and suites as the
configuration file describes them in the words of Go.

Guarantees:
- H-10: the files are read again and again; a new pair is used for new connections as soon as certificate and key
  fit each other, and until then the old one stays. Connections that are open do not notice.
- Who serves nothing over TLS does not load the library that reads certificates: it is imported where one is read.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import structlog

from trainmaster.controller.ciphersuites import CIPHER_SUITES
from trainmaster.metrics.certificates import set_expiry
from trainmaster.metrics.webhook import CERTIFICATE_ERRORS, CERTIFICATE_READS

log = structlog.get_logger(__name__)

REFRESH_INTERVAL: Final = 10.0
"""Seconds between two reads of the files."""

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"


class CertWatcher:
    """The pair of files in a directory, as Kubernetes mounts a Secret of type `kubernetes.io/tls`.

    Args:
        directory: Where `tls.crt` and `tls.key` are.
        make_context: Makes the TLS context of a server, without a certificate.
        called: The name by which clients call the server, if a certificate for another one is to be told of.
    """

    def __init__(
        self, directory: Path, make_context: Callable[[], ssl.SSLContext], *, called: str | None = None
    ) -> None:
        self._called = called
        self._certificate, self._key = directory / CERTIFICATE, directory / KEY
        self._make_context = make_context
        self._read: tuple[bytes, bytes] | None = None
        self._current: ssl.SSLContext | None = None
        self._valid: tuple[datetime, datetime] | None = None
        self.error: str | None = f"there was no look at {self._certificate} yet"
        """Why the files as they are cannot be used; None if they can."""

    def read_certificate(self, *, server: str = "") -> bool:
        """Read the files again; returns whether there is a certificate to serve, new or old.

        Args:
            server: What is served with it, for the log.
        """
        try:
            read = self._certificate.read_bytes(), self._key.read_bytes()
        except OSError as error:
            self.error = f"cannot read {error.filename}: {error.strerror}"
            return self._current is not None
        if read == self._read:
            return self._current is not None
        CERTIFICATE_READS.inc()
        told = self.error
        context = self._make_context()
        try:
            context.load_cert_chain(self._certificate, self._key, password="")  # never ask on a terminal
        except (OSError, ValueError) as error:
            # Half of a new pair, perhaps. Files may be read between two writes: the next look tells.
            CERTIFICATE_ERRORS.inc()
            self.error = f"{self._certificate} and {self._key} are no pair of certificate and key: {error}"
            if self._current is not None and self.error != told:
                log.warning("a new certificate cannot be used; the old one stays", server=server, error=self.error)
            return self._current is not None
        self._valid = _dates(read[0])
        self._tell_of_names(read[0])
        set_expiry("serving", self._valid[1].timestamp() if self._valid is not None else 0.0)
        if self._current is not None:
            log.info("a new certificate is served", server=server, certificate_expires=self.expires)
        self._read, self._current, self.error = read, context, None
        return True

    @property
    def expires(self) -> str:
        """Until when the certificate that is served is valid, as RFC 3339; empty if that is not known."""
        return _rfc3339(self._valid[1]) if self._valid is not None else ""

    def _tell_of_names(self, pem: bytes) -> None:
        """Tell that clients will refuse a certificate because of its names; it is served all the same."""
        from trainmaster.controller.certificates.pki import dns_names, read_certificates  # noqa: PLC0415 - see above

        leaf = next(iter(read_certificates(pem)), None)
        names = dns_names(leaf) if leaf is not None else []
        if self._called is None or leaf is None or {self._called, f"*.{self._called.partition('.')[2]}"} & {*names}:
            return
        log.warning(
            "the certificate is not for the name by which API servers call the webhooks",
            file=str(self._certificate),
            names=names,
            called=self._called,
            hint="renew it for that name, or have the webhook configurations call another one",
        )

    def validity(self, now: datetime) -> str | None:
        """Say that nobody accepts the certificate that is served, because of its dates; None if it is not so."""
        if self._valid is None:
            return None
        first, last = self._valid
        if now > last:
            return f"the certificate in {self._certificate} expired at {_rfc3339(last)}; renew it"
        if now < first:
            return (
                f"the certificate in {self._certificate} is not valid before {_rfc3339(first)}, and it is "
                f"{_rfc3339(now)} here; look at the clock of this machine"
            )
        return None

    def server_context(self) -> ssl.SSLContext:
        """Return the context to listen with; each handshake takes the certificate of its moment."""
        listening = self._make_context()

        def choose(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
            if self._current is not None:
                connection.context = self._current

        listening.sni_callback = choose
        return listening


def _rfc3339(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _dates(pem: bytes) -> tuple[datetime, datetime] | None:
    """Return from when until when a certificate is valid; None if OpenSSL alone can read it."""
    from trainmaster.controller.certificates.pki import read_certificates  # noqa: PLC0415 - see above

    leaf = next(iter(read_certificates(pem)), None)
    return None if leaf is None else (leaf.not_valid_before_utc, leaf.not_valid_after_utc)


_VERSIONS: Final = {
    "1.0": ssl.TLSVersion.TLSv1,
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
_DEFAULT_VERSION: Final = ssl.TLSVersion.TLSv1_2


def server_context(*, min_version: str | None = None, cipher_suites: Sequence[str] = ()) -> ssl.SSLContext:
    """Make the context of a server, without a certificate.

    Args:
        min_version: The lowest version of TLS, from `1.0` to `1.3`; None or empty for the default.
        cipher_suites: Suites by the names of IANA, of which those of TLS 1.2 count; none for the default.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _DEFAULT_VERSION
    if min_version:
        context.minimum_version = _VERSIONS[min_version]
    suites = [CIPHER_SUITES[suite] for suite in cipher_suites if suite in CIPHER_SUITES]
    if suites:
        context.set_ciphers(":".join(suites))
    # The server speaks no HTTP/2; a client that insists on it gets no connection.
    context.set_alpn_protocols(["http/1.1"])
    return context
