"""The CA bundle that pods trust: who signs the certificate of the status server.

Guarantees:
- It is read from `ca.crt` beside the serving certificate, where Kubernetes mounts the Secret: the manager needs no
  right to read Secrets for it, and never holds the key of the authority in memory.
- Only certificates are taken from the file, whatever else is in it: its text goes to every namespace that trains.
- trainer S6: the file is read again and again; `refresh` returns whether the bundle has changed.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

import structlog

log = structlog.get_logger(__name__)

CA_CERTIFICATE: Final = "ca.crt"

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----", re.ASCII)


class CABundle:
    """The certificates of a file.

    Args:
        directory: Where `ca.crt` is.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / CA_CERTIFICATE
        self._read: bytes | None = None
        self._current: str | None = None
        self._error: str | None = None

    def current(self) -> str | None:
        """Return the certificates in PEM; None if there never were any."""
        return self._current

    def refresh(self) -> bool:
        """Read the file again; returns whether the certificates have changed. An unusable file changes nothing."""
        try:
            read = self._path.read_bytes()
        except OSError as error:
            return self._reject(f"cannot read {self._path}: {error.strerror}")
        if read == self._read:
            return False
        certificates = _CERTIFICATE.findall(read.decode("ascii", "replace"))
        text = "".join(f"{certificate}\n" for certificate in certificates)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError):
            return self._reject(f"there is no usable certificate in {self._path}")
        self._read, self._error = read, None
        known, changed, self._current = self._current is not None, text != self._current, text
        if known and changed:
            log.info("the authority that trainers are to trust is read", file=str(self._path), count=len(certificates))
        return changed

    def _reject(self, problem: str) -> bool:
        if problem != self._error:
            log.warning(
                "there is no authority for trainers to trust"
                if self._current is None
                else "the new authority for trainers cannot be used; the old one stays",
                error=problem,
                hint="put the certificate that signs tls.crt into ca.crt beside it; it goes on by itself",
            )
        self._error = problem
        return False
