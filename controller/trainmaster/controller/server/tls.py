"""TLS of the servers of the manager, as the configuration file describes it in the words of Go."""

from __future__ import annotations

import ssl
from typing import Final

import structlog

from trainmaster.controller.configuration import Tls

log = structlog.get_logger(__name__)

_VERSIONS: Final = {
    "1.0": ssl.TLSVersion.TLSv1,
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
_DEFAULT_VERSION: Final = ssl.TLSVersion.TLSv1_2

# Suites of TLS 1.2 by the names of IANA; those of TLS 1.3 are all secure, and neither Go nor Python lets one choose.
_CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
_TLS_1_3: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})


def server_context(settings: Tls) -> ssl.SSLContext:
    """Make the context of a server, without a certificate. What is unknown is logged, and the default is taken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _DEFAULT_VERSION
    if settings.min_version is not None:
        version = _VERSIONS.get(settings.min_version)
        if version is None:
            known = ", ".join(_VERSIONS)
            log.warning("tls.minVersion is unknown; 1.2 is taken", given=settings.min_version, known=known)
        else:
            context.minimum_version = version
    wanted = [suite for suite in settings.cipher_suites if suite not in _TLS_1_3]
    unknown = [suite for suite in wanted if suite not in _CIPHERS]
    if unknown:
        log.warning("some of tls.cipherSuites are unknown or not secure and are left out", suites=unknown)
    suites = [_CIPHERS[suite] for suite in wanted if suite in _CIPHERS]
    if suites:
        context.set_ciphers(":".join(suites))
    # The server speaks no HTTP/2; a client that insists on it gets no connection.
    context.set_alpn_protocols(["http/1.1"])
    return context
