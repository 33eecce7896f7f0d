"""TLS contexts that verify servers as Go does, and are made of files that are replaced while we run.

Guarantees:
- Which authorities are accepted does not depend on the version of Python. Since 3.13 its defaults refuse certificates
  without the key identifiers of RFC 5280, which the authorities of many clusters lack and client-go does not ask for.
  Any certificate among the authorities is trusted by itself, an intermediate one too.
- A context is made anew when the content of one of its files changes, and is complete: authorities and our own
  certificate together. Connections that were opened under the old one are never used for a new request.
- A file that does not parse, or a certificate that does not fit its key (as in the middle of their replacement),
  raises `ConfigurationError` and leaves the old context in use; the next `reload` tries again.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from trainmaster.controller.kube.rest.config import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """What a TLS context is made of; without authorities those of the machine count."""

    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None
    verify: bool = True


class TlsReloader:
    """The TLS context for a set of files, as they are now."""

    def __init__(self, files: TlsFiles) -> None:
        self._seen = (files, _contents(files))
        self.context = _context(files)

    def reload(self, files: TlsFiles) -> bool:
        """Make a new context if the files, or which files they are, have changed; tell whether."""
        now = (files, _contents(files))
        if now == self._seen:
            return False
        self.context = _context(files)
        self._seen = now
        return True


def client_context(*, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts these authorities, or those of the machine if there are none.

    Raises:
        OSError: The file cannot be read, or there is no certificate in it (`ssl.SSLError`).
    """
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _contents(files: TlsFiles) -> tuple[bytes | None, ...]:
    return tuple(_read(path) for path in (files.authorities, files.certificate, files.key))


def _read(path: str | None) -> bytes | None:
    try:
        return Path(path).read_bytes() if path else None
    except OSError as error:
        raise ConfigurationError(f"{path} is needed for TLS, but cannot be read: {error.strerror}") from error


def _context(files: TlsFiles) -> ssl.SSLContext:
    try:
        context = client_context(cafile=files.authorities)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the certificate authority {files.authorities} is unusable: {error}") from error
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if files.certificate:
        try:
            context.load_cert_chain(files.certificate, files.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"the client certificate {files.certificate} with the key {files.key} is unusable: {error}"
            ) from error
    return context
