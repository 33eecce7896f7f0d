"""Why no answer came, in words that help: the `TransportError` of each situation.

Guarantees:
- Each text says what happened, to which server and request, and what to look at next.
- `NotConnected` and its kinds are used only where the server cannot have seen the request.

`where` is the method and the URL of the request, `peer` the origin of the server, or the proxy.
"""

from __future__ import annotations

import os
import socket
import ssl

from trainmaster.controller.kube.rest.errors import CertificateRejected, NotConnected, TransportError, shorten

CHECK_SERVER = "check the server address in the kubeconfig"


def unresolved(where: str, host: str, error: OSError) -> NotConnected:
    """The name of the server has no address."""
    return NotConnected(
        f"{where}: the name {host!r} cannot be resolved ({reason_of(error)}); {CHECK_SERVER} and the DNS"
    )


def timed_out(where: str, peer: str, timeout: float) -> NotConnected:
    """Nobody has answered, or not to the end of the handshake."""
    return NotConnected(
        f"{where}: no connection to {peer} within {timeout:g} s; {CHECK_SERVER}, the network and firewalls"
    )


def unreachable(where: str, peer: str, error: OSError) -> NotConnected:
    """The connection was refused, or broke before it was ready."""
    if isinstance(error, ConnectionRefusedError):
        return NotConnected(f"{where}: {peer} refused the connection; is the server running? {CHECK_SERVER}")
    return NotConnected(f"{where}: no connection to {peer} ({reason_of(error)}); {CHECK_SERVER} and the network")


def untrusted(where: str, peer: str, error: Exception) -> CertificateRejected:
    """We do not accept the certificate of the server."""
    reason = getattr(error, "verify_message", "") or reason_of(error)
    if "mismatch" in reason or "doesn't match" in reason or "not valid for" in reason:
        advice = f"{CHECK_SERVER}, or set tls-server-name to a name in the certificate"
    elif "expired" in reason or "not yet valid" in reason:
        advice = "renew the certificate of the server, or check the clocks"
    else:
        advice = "check certificate-authority in the kubeconfig; the server may have a new one"
    return CertificateRejected(f"{where}: the certificate of {peer} was not accepted: {reason}; {advice}")


def no_tls(where: str, peer: str, error: Exception) -> NotConnected:
    """No TLS connection came about."""
    return NotConnected(f"{where}: {_handshake(error, peer)}")


def no_answer(where: str, peer: str, error: Exception) -> TransportError:
    """The connection failed when the request may have been sent; an `EOFError` says that the server closed it."""
    if _alert(error):
        # In TLS 1.3 the server judges our certificate after the handshake, when it may have the request already.
        return TransportError(f"{where}: {_handshake(error, peer)}")
    if isinstance(error, EOFError | ConnectionResetError) and peer.startswith("http://"):
        return TransportError(
            f"{where}: {peer} closed the connection without an answer; "
            "if it expects https, change the server address in the kubeconfig"
        )
    if isinstance(error, EOFError):
        return TransportError(f"{where}: {peer} closed the connection without an answer; it may be restarting")
    return TransportError(f"{where}: the connection to {peer} failed before an answer: {reason_of(error)}")


def reason_of(error: BaseException) -> str:
    """Say it as the operating system does, without what libraries add."""
    inner = getattr(error, "os_error", None)
    cause = inner if isinstance(inner, BaseException) else error
    if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError | socket.gaierror) and cause.errno:
        return os.strerror(cause.errno)
    text = getattr(cause, "strerror", None) or str(cause)
    return shorten(str(text), limit=300) or type(cause).__name__


def _handshake(error: BaseException, peer: str) -> str:
    if name := _alert(error):
        return f"{peer} refused our side of TLS ({name}); check the client certificate in the kubeconfig"
    name = _tls_reason(error)
    if name in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"}:
        return f"{peer} does not speak TLS; is it the right port, or should the server address begin with http://?"
    return f"no TLS connection to {peer} ({name or reason_of(error)}); {CHECK_SERVER}"


def _alert(error: BaseException) -> str:
    """Return the name of the alert by which the server ended TLS, if it did."""
    name = _tls_reason(error)
    return name if "ALERT" in name else ""


def _tls_reason(error: BaseException) -> str:
    """Return what OpenSSL calls the error that lies below those of libraries, which are SSLErrors without a reason."""
    found: object = error
    while isinstance(found, BaseException):
        if isinstance(found, ssl.SSLError) and getattr(found, "reason", None):
            return str(found.reason)
        found = getattr(found, "os_error", None) or found.__cause__ or found.__context__
    return ""
