"""The client's end of TLS between buffers in memory: nothing here waits or knows a socket.

asyncio has the same, for any protocol above and at any moment; this one knows that one request is answered before the
next is sent, and costs a fifth of it.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final

_READ_AT_MOST: Final = 2**14
"""The longest record of TLS."""


class Tls:
    """One connection.

    Args:
        context: Whom we trust, and what we show.
        server_hostname: The name that the certificate of the server has to be for.
    """

    __slots__ = ("_incoming", "_object", "_outgoing", "failure", "finished")

    def __init__(self, context: ssl.SSLContext, server_hostname: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self.finished = False
        """Whether the server has taken leave."""
        self.failure: ssl.SSLError | None = None
        """What ended the connection, for instance an alert."""

    def shake_hands(self, data: bytes = b"") -> bool:
        """Go on with the handshake after `data`, and return whether it is complete.

        Raises:
            ssl.SSLError: It has failed.
        """
        self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def encrypt(self, data: bytes) -> bytes:
        """Return what is to be sent, for `data` to arrive."""
        written, size = self._object.write(data), len(data)
        if written < size:
            view = memoryview(data)
            while written < size:
                written += self._object.write(view[written:])
        return self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """Return what has arrived as a whole with `data`; sets `finished` or `failure` if it was the last."""
        incoming, pieces = self._incoming, []
        incoming.write(data)
        try:
            while True:
                piece = self._object.read(_READ_AT_MOST)
                if not piece:
                    self.finished = True
                    break
                pieces.append(piece)
                if not incoming.pending and not self._object.pending():
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.failure = error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def unsent(self) -> bytes:
        """Return what TLS has to say for itself: steps of the handshake, alerts, new keys."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def farewell(self) -> bytes:
        """Return what takes leave of the server."""
        with suppress(ssl.SSLError):  # the server has not taken leave yet, or never will
            self._object.unwrap()
        return self._outgoing.read()
