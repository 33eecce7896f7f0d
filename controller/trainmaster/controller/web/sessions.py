"""Sessions of browsers: who has shown a token gets a cookie in its place.

Guarantees:
- The cookie is no token: it opens a session of this process and nothing else. The token is kept, encrypted by the
  cookie, which is not kept: neither of them alone is of use, and the token is checked again and again.
- There are so many sessions at most, each for so long; the oldest makes room.
"""

from __future__ import annotations

import hashlib
from typing import Final

from cachetools import TTLCache
from cryptography.fernet import Fernet, InvalidToken

from trainmaster.controller.kube.clock import Clock

LIFETIME: Final = 8 * 3600
"""Seconds."""

MOST: Final = 2000


class Sessions:
    """All sessions of this process.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._tokens: TTLCache[bytes, bytes] = TTLCache(MOST, LIFETIME, timer=clock.monotonic)
        """Encrypted tokens by the digest of the cookie."""

    def open(self, token: str) -> str:
        """Begin a session for a token; returns the cookie."""
        key = Fernet.generate_key()
        self._tokens[_digest(key)] = Fernet(key).encrypt(token.encode())
        return key.decode()

    def token(self, cookie: str) -> str:
        """Return the token of a session; empty if there is none, or none any more."""
        try:
            key = cookie.encode("ascii")
            encrypted = self._tokens.get(_digest(key))
            return Fernet(key).decrypt(encrypted).decode() if encrypted is not None else ""
        except (ValueError, InvalidToken):
            return ""

    def close(self, cookie: str) -> None:
        """End a session."""
        self._tokens.pop(_digest(cookie.encode("utf-8", "replace")), None)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
