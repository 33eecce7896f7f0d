"""TLS of the servers of the manager: certificates that change while they are served, with versions and suites as the
configuration file describes them in the words of Go.

Guarantees:
- H-10: the files are read again and again; a new pair is used for new connections as soon as certificate and key
  fit each other, and until then the old one stays. Connections that are open do not notice.
- Who serves nothing over TLS does not load the library that reads certificates: it is imported where one is read.
"""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path
from typing import Final

import structlog

from trainmaster.controller.configuration import Tls
from trainmaster.controller.configuration.fields import CIPHER_SUITES
from trainmaster.controller.kube.clock import time_text
from trainmaster.metrics.certificates import set_expiry
from trainmaster.metrics.webhook import CERTIFICATE_ERRORS, CERTIFICATE_READS

log = structlog.get_logger(__name__)

REFRESH_INTERVAL: Final = 10.0
"""Seconds between two reads of the files."""

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

_VERSIONS: Final = {
    "1.0": ssl.TLSVersion.TLSv1,
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
_DEFAULT_VERSION: Final = "1.2"


class CertWatcher:
    """The pair of files in a directory, as Kubernetes mounts a Secret of type `kubernetes.io/tls`.

    Args:
        directory: Where `tls.crt` and `tls.key` are.
        called: The name by which clients call the server, if a certificate for another one is to be told of.
    """

    def __init__(self, directory: Path, tls: Tls, *, called: str | None = None) -> None:
        self._called = called
        self._certificate, self._key = directory / CERTIFICATE, directory / KEY
        self._tls = tls
        self._read: tuple[bytes, bytes] | None = None
        self._current: ssl.SSLContext | None = None
        self._valid: tuple[datetime, datetime] | None = None
        self.error: str | None = f"there was no look at {self._certificate} yet"
        """Why the files as they are cannot be used; None if they can."""

    def read_certificate(self, *, server: str = "") -> bool:
        """Read the files again; returns whether there is a certificate to serve, new or old."""
        try:
            read = self._certificate.read_bytes(), self._key.read_bytes()
        except OSError as error:
            self.error = f"cannot read {error.filename}: {error.strerror}"
            return self._current is not None
        if read == self._read:
            return self._current is not None
        CERTIFICATE_READS.inc()
        told = self.error
        context = server_context(self._tls)
        try:
            context.load_cert_chain(self._certificate, self._key, password="")  # never ask on a terminal
        except (OSError, ValueError) as error:
            # Half of a new pair, perhaps. Files may be read between two writes: the next look tells.
            CERTIFICATE_ERRORS.inc()
            self.error = f"{self._certificate} and {self._key} are no pair of certificate and key: {error}"
            if self._current is not None and self.error != told:
                log.warning("a new certificate cannot be used; the old one stays", server=server, error=self.error)
            return self._current is not None
        self._valid = self._look_at(read[0])
        set_expiry("serving", self._valid[1].timestamp() if self._valid is not None else 0.0)
        if self._current is not None:
            log.info("a new certificate is served", server=server, certificate_expires=self.expires)
        self._read, self._current, self.error = read, context, None
        return True

    @property
    def expires(self) -> str:
        """Until when the certificate that is served is valid, as RFC 3339; empty if that is not known."""
        return time_text(self._valid[1]) if self._valid is not None else ""

    def _look_at(self, pem: bytes) -> tuple[datetime, datetime] | None:
        """Return from when until when a certificate is valid; None if OpenSSL alone can read it.

        Tells that clients will refuse it because of its names; it is served all the same.
        """
        from trainmaster.controller.certificates.pki import dns_names, read_certificates  # noqa: PLC0415 - see above

        leaf = next(iter(read_certificates(pem)), None)
        if leaf is None:
            return None
        names = dns_names(leaf)
        if self._called is not None and not {self._called, f"*.{self._called.partition('.')[2]}"} & {*names}:
            log.warning(
                "the certificate is not for the name by which API servers call the webhooks",
                file=str(self._certificate),
                names=names,
                called=self._called,
                hint="renew it for that name, or have the webhook configurations call another one",
            )
        return leaf.not_valid_before_utc, leaf.not_valid_after_utc

    def validity(self, now: datetime) -> str | None:
        """Say that nobody accepts the certificate that is served, because of its dates; None if it is not so."""
        if self._valid is None:
            return None
        first, last = self._valid
        if now > last:
            return f"the certificate in {self._certificate} expired at {time_text(last)}; renew it"
        if now < first:
            return (
                f"the certificate in {self._certificate} is not valid before {time_text(first)}, and it is "
                f"{time_text(now)} here; look at the clock of this machine"
            )
        return None

    def server_context(self) -> ssl.SSLContext:
        """Return the context to listen with; each handshake takes the certificate of its moment."""
        listening = server_context(self._tls)

        def choose(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
            if self._current is not None:
                connection.context = self._current

        listening.sni_callback = choose
        return listening


def server_context(tls: Tls) -> ssl.SSLContext:
    """Make the context of a server, without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version or _DEFAULT_VERSION]
    suites = [CIPHER_SUITES[suite] for suite in tls.cipher_suites if suite in CIPHER_SUITES]
    if suites:  # of TLS 1.2; those of TLS 1.3 are always on
        context.set_ciphers(":".join(suites))
    # The server speaks no HTTP/2; a client that insists on it gets no connection.
    context.set_alpn_protocols(["http/1.1"])
    return context
