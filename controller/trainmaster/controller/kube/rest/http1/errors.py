"""Why no connection or no answer came: the `TransportError` of each situation.

Guarantees:
- Each text says what happened, to which request, with which server or proxy, and what to look at next.
- `NotConnected` and its kinds are used only where the server cannot have seen the request.

`where` is the method and the URL of the request, `peer` the server or the proxy.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final

from trainmaster.controller.kube.rest.config import Peer
from trainmaster.controller.kube.rest.errors import (
    CertificateRejected,
    NotConnected,
    TransportError,
    reason_of,
    shorten,
)

_CHECK: Final = {
    False: "check the server address in the kubeconfig",
    True: "check proxy-url, HTTPS_PROXY and NO_PROXY",
}
"""What to look at if a peer cannot be reached, by whether it is a proxy."""

_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"})


def cause_of(error: BaseException) -> BaseException:
    """Return why a connection broke; Python 3.11.7 answers every failure of TLS within TLS with a TypeError."""
    return error.__context__ if isinstance(error, TypeError) and isinstance(error.__context__, OSError) else error


def not_connected(where: str, peer: Peer, error: BaseException, *, timeout: float) -> NotConnected:
    """No connection came about; a `TimeoutError` without a number is our own, after `timeout` seconds."""
    match error:
        case ssl.SSLCertVerificationError():
            return _untrusted(where, peer, error)
        case ssl.SSLError():
            text = _handshake(error, peer)
        case TimeoutError(errno=None):
            text = (
                f"no connection to {peer.name} within {timeout:g} s; {_CHECK[peer.is_proxy]}, the network and firewalls"
            )
        case _ if peer.is_proxy:
            text = f"no connection to {peer.name} ({reason_of(error)}); {_CHECK[peer.is_proxy]}"
        case socket.gaierror():
            text = (
                f"the name {peer.host!r} cannot be resolved ({reason_of(error)}); {_CHECK[peer.is_proxy]} and the DNS"
            )
        case ConnectionRefusedError():
            text = f"{peer.name} refused the connection; is the server running? {_CHECK[peer.is_proxy]}"
        case _:
            text = f"no connection to {peer.name} ({reason_of(error)}); {_CHECK[peer.is_proxy]} and the network"
    return NotConnected(f"{where}: {text}")


def no_tunnel(where: str, proxy: Peer, status: int, reason: str) -> NotConnected:
    """The proxy does not lead to the server."""
    told = shorten(f"{status} {reason}".strip(), limit=200)
    return NotConnected(f"{where}: {proxy.name} refused to connect: {told}; {_CHECK[True]}")


def no_answer(where: str, peer: Peer, error: Exception) -> TransportError:
    """The connection failed when the request may have been sent; an `EOFError` says that the server closed it."""
    if _alert(error):
        # In TLS 1.3 the server judges our certificate after the handshake, when it may have the request already.
        text = _handshake(error, peer)
    elif isinstance(error, EOFError | ConnectionResetError) and not peer.tls and not peer.is_proxy:
        text = (
            f"{peer.name} closed the connection without an answer; if it expects https, change the server address in "
            "the kubeconfig"
        )
    elif isinstance(error, EOFError):
        text = f"{peer.name} closed the connection without an answer; it may be restarting"
    else:
        text = f"the connection to {peer.name} failed before an answer: {reason_of(error)}"
    return TransportError(f"{where}: {text}")


def _untrusted(where: str, peer: Peer, error: ssl.SSLCertVerificationError) -> CertificateRejected:
    reason = error.verify_message or reason_of(error)
    if "mismatch" in reason or "doesn't match" in reason or "not valid for" in reason:
        advice = f"{_CHECK[peer.is_proxy]}, or set tls-server-name to a name in the certificate"
    elif "expired" in reason or "not yet valid" in reason:
        advice = "renew the certificate of the server, or check the clocks"
    else:
        advice = "check certificate-authority in the kubeconfig; the server may have a new one"
    return CertificateRejected(f"{where}: the certificate of {peer.name} was not accepted: {reason}; {advice}")


def _handshake(error: Exception, peer: Peer) -> str:
    if name := _alert(error):
        return f"{peer.name} refused our side of TLS ({name}); check the client certificate in the kubeconfig"
    reason = getattr(error, "reason", None)
    if reason in _NOT_TLS:
        return f"{peer.name} does not speak TLS; is it the right port, or should the server address begin with http://?"
    return f"no TLS connection to {peer.name} ({reason or reason_of(error)}); {_CHECK[peer.is_proxy]}"


def _alert(error: Exception) -> str:
    """Return the name of the alert by which the server ended TLS, if it did."""
    reason = str(getattr(error, "reason", None) or "")
    return reason if isinstance(error, ssl.SSLError) and "ALERT" in reason else ""
