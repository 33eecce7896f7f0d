"""Why no answer came, in words that help: from the exceptions of aiohttp to the `TransportError` family.

Guarantees:
- Each text says what happened, to which server and request, and what to look at next.
- `NotConnected` and its kinds are used only where the server cannot have seen the request.
"""

from __future__ import annotations

import os
import socket
import ssl
from urllib.parse import urlsplit

import aiohttp

from trainmaster.controller.kube.rest.errors import CertificateRejected, NotConnected, TransportError, shorten

_CHECK_SERVER = "check the server address in the kubeconfig"


def transport_error(
    error: aiohttp.ClientError | OSError, *, method: str, url: str, timeout: float, proxy: str | None
) -> TransportError:
    """Make the error that says what went wrong between us and the server."""
    where = f"{method} {url}"
    parts = urlsplit(url)
    peer = f"the proxy {_without_password(proxy)}" if proxy else f"{parts.scheme}://{parts.netloc}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return CertificateRejected(f"{where}: {_certificate(error.certificate_error, peer)}")
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return NotConnected(f"{where}: {_handshake(error, peer)}")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return NotConnected(
            f"{where}: the name {error.host!r} cannot be resolved ({_reason(error)}); {_CHECK_SERVER} and the DNS"
        )
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return NotConnected(
            f"{where}: no connection to {peer} ({_reason(error)}); check proxy-url, HTTPS_PROXY and NO_PROXY"
        )
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return NotConnected(
            f"{where}: {peer} refused to connect: {error.status} {error.message}; "
            "check proxy-url, HTTPS_PROXY and NO_PROXY"
        )
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return NotConnected(
            f"{where}: no connection to {peer} within {timeout:g} s; {_CHECK_SERVER}, the network and firewalls"
        )
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            return NotConnected(f"{where}: {peer} refused the connection; is the server running? {_CHECK_SERVER}")
        return NotConnected(f"{where}: no connection to {peer} ({_reason(error)}); {_CHECK_SERVER} and the network")
    if _alert(error):
        # In TLS 1.3 the server judges our certificate after the handshake, when it may have the request already.
        return TransportError(f"{where}: {_handshake(error, peer)}")
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError) and parts.scheme == "http":
        return TransportError(
            f"{where}: {peer} closed the connection without an answer; "
            "if it expects https, change the server address in the kubeconfig"
        )
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return TransportError(f"{where}: {peer} closed the connection without an answer; it may be restarting")
    return TransportError(f"{where}: the connection to {peer} failed before an answer: {_reason(error)}")


def _certificate(error: Exception, peer: str) -> str:
    """Explain why the certificate of the server was not accepted."""
    reason = getattr(error, "verify_message", "") or _reason(error)
    if "mismatch" in reason or "doesn't match" in reason or "not valid for" in reason:
        advice = f"{_CHECK_SERVER}, or set tls-server-name to a name in the certificate"
    elif "expired" in reason or "not yet valid" in reason:
        advice = "renew the certificate of the server, or check the clocks"
    else:
        advice = "check certificate-authority in the kubeconfig; the server may have a new one"
    return f"the certificate of {peer} was not accepted: {reason}; {advice}"


def _handshake(error: BaseException, peer: str) -> str:
    """Explain why no TLS connection came about."""
    if name := _alert(error):
        return f"{peer} refused our side of TLS ({name}); check the client certificate in the kubeconfig"
    name = _tls_reason(error)
    if name in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"}:
        return f"{peer} does not speak TLS; is it the right port, or should the server address begin with http://?"
    return f"no TLS connection to {peer} ({name or _reason(error)}); {_CHECK_SERVER}"


def _alert(error: BaseException) -> str:
    """Return the name of the alert by which the server ended TLS, if it did."""
    name = _tls_reason(error)
    return name if "ALERT" in name else ""


def _tls_reason(error: BaseException) -> str:
    """Return what OpenSSL calls the error that lies below those of aiohttp, which are SSLErrors without a reason."""
    found: object = error
    while isinstance(found, BaseException):
        if isinstance(found, ssl.SSLError) and getattr(found, "reason", None):
            return str(found.reason)
        found = getattr(found, "os_error", None) or found.__cause__ or found.__context__
    return ""


def _reason(error: BaseException) -> str:
    """Say it as the operating system does, without what aiohttp adds."""
    inner = getattr(error, "os_error", None)
    cause = inner if isinstance(inner, BaseException) else error
    if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError | socket.gaierror) and cause.errno:
        return os.strerror(cause.errno)
    text = getattr(cause, "strerror", None) or str(cause)
    return shorten(str(text), limit=300) or type(cause).__name__


def _without_password(url: str | None) -> str:
    parts = urlsplit(url or "")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
