"""TLS contexts that verify servers as Go does, and are made of files that are replaced while we run.

Guarantees:
- Which authorities are accepted does not depend on the version of Python. Since 3.13 its defaults refuse certificates
  without the key identifiers of RFC 5280, which the authorities of many clusters lack and client-go does not ask for.
  Any certificate among the authorities is trusted by itself, an intermediate one too.
- A context is made anew when the content of one of its files changes, and is complete: authorities and our own
  certificate together. Connections that were opened under the old one are never used for a new request.
- A file that does not parse, or a certificate that does not fit its key (as in the middle of their replacement),
  raises `ConfigurationError` and leaves the old context in use until the next look.
"""

from __future__ import annotations

import ssl
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

from trainmaster.controller.kube.rest.config import ConfigurationError


class Pem(NamedTuple):
    """Certificates, or a key."""

    source: str
    """For errors: the file, or what else it comes from."""
    content: bytes

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; raises `ConfigurationError` if that is not possible."""
        try:
            return cls(str(path), path.read_bytes())
        except OSError as error:
            raise ConfigurationError(f"{path} is needed for TLS, but cannot be read: {error.strerror}") from error


class TlsFiles(NamedTuple):
    """What a TLS context is made of; without authorities those of the machine count."""

    authorities: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    verify: bool = True


def client_context(authorities: Pem | None = None) -> ssl.SSLContext:
    """Return a context that trusts these authorities, or the machine's; raises `ConfigurationError` without any."""
    # Certificates are ASCII; what stands around them need not be.
    text = None if authorities is None else authorities.content.decode("ascii", "ignore") or "empty"
    try:
        context = ssl.create_default_context(cadata=text)
    except ssl.SSLError as error:
        source = authorities.source if authorities is not None else "of the machine"
        raise ConfigurationError(f"the certificate authority {source} is unusable: {error}") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


@lru_cache(maxsize=8)
def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context for some files: the same one as long as they are the same.

    Raises:
        ConfigurationError: They do not parse, or do not fit each other.
    """
    context = client_context(files.authorities)
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if files.certificate is not None:
        key = files.key or files.certificate
        # OpenSSL reads them from files only; from one file it would send a certificate that stands by the key twice.
        with tempfile.NamedTemporaryFile() as chain_file, tempfile.NamedTemporaryFile() as key_file:
            for file, pem in ((chain_file, files.certificate), (key_file, key)):
                file.write(pem.content)
                file.flush()
            try:
                # Without a password it would ask the terminal for one.
                context.load_cert_chain(chain_file.name, key_file.name, password="")
            except (OSError, ssl.SSLError) as error:
                raise ConfigurationError(
                    f"the client certificate {files.certificate.source} with the key {key.source} is unusable: {error}"
                ) from error
    return context
