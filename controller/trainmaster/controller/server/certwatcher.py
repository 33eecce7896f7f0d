"""Certificates that change while they are served.

Guarantees:
- H-10: the files are looked at again and again; a new pair is used for new connections as soon as certificate and key
  fit each other, and until then the old one stays. Connections that are open do not notice.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from trainmaster.metrics.webhook import CERTIFICATE_ERRORS, CERTIFICATE_READS

log = structlog.get_logger(__name__)

REFRESH_INTERVAL: Final = 10.0
"""Seconds between two looks at the files."""

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"


class CertWatcher:
    """The pair of files in a directory, as Kubernetes mounts a Secret of type `kubernetes.io/tls`.

    Args:
        directory: Where `tls.crt` and `tls.key` are.
        make_context: Makes the TLS context of a server, without a certificate.
    """

    def __init__(self, directory: Path, make_context: Callable[[], ssl.SSLContext]) -> None:
        self._certificate, self._key = directory / CERTIFICATE, directory / KEY
        self._make_context = make_context
        self._read: tuple[bytes, bytes] | None = None
        self._current: ssl.SSLContext | None = None
        self.error: str | None = f"there was no look at {self._certificate} yet"
        """Why the files as they are cannot be used; None if they can."""

    def read_certificate(self) -> bool:
        """Look at the files again; returns whether there is a certificate to serve, new or old."""
        try:
            read = self._certificate.read_bytes(), self._key.read_bytes()
        except OSError as error:
            self.error = f"cannot read {error.filename}: {error.strerror}"
            return self._current is not None
        if read == self._read:
            return self._current is not None
        CERTIFICATE_READS.inc()
        context = self._make_context()
        try:
            context.load_cert_chain(self._certificate, self._key, password="")  # never ask on a terminal
        except (OSError, ValueError) as error:
            # Half of a new pair, perhaps. Files may be read between two writes: the next look tells.
            CERTIFICATE_ERRORS.inc()
            self.error = f"{self._certificate} and {self._key} are no pair of certificate and key: {error}"
            if self._current is not None:
                log.warning("a new certificate cannot be used; the old one stays", error=self.error)
            return self._current is not None
        log.info("the certificate of the servers is read", file=str(self._certificate), again=self._read is not None)
        self._read, self._current, self.error = read, context, None
        return True

    def server_context(self) -> ssl.SSLContext:
        """Return the context to listen with; each handshake takes the certificate of its moment."""
        listening = self._make_context()

        def choose(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
            if self._current is not None:
                connection.context = self._current

        listening.sni_callback = choose
        return listening
