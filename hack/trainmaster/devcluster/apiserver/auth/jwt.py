"""Signing JSON Web Tokens: ES256 with one key, which lives as long as the cluster's state.

Guarantees:
- only tokens that were signed with this key, by the algorithm of this key, are ever accepted;
- the file of the key is readable by its owner only, from the moment it exists.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from pathlib import Path
from typing import Any

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from trainmaster.devcluster.certificates import write_private
from trainmaster.runtime.jsontree import JsonObject

ALGORITHM = "ES256"

_CURVE = ec.SECP256R1()
_HASH = ec.ECDSA(hashes.SHA256())
_HALF = 32
"""Bytes of each of the two numbers of a signature."""


class BadSignature(Exception):
    """A token that this key did not sign, or no token at all."""


class SigningKey:
    """A private key and what others need to verify its signatures; without an argument a new one."""

    def __init__(self, private: ec.EllipticCurvePrivateKey | None = None) -> None:
        self._private = private or ec.generate_private_key(_CURVE)
        self._public = self._private.public_key()
        encoded = self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.id = _encode(hashlib.sha256(encoded).digest())
        self._header = _encode(orjson.dumps({"alg": ALGORITHM, "kid": self.id}))

    @classmethod
    def ensure(cls, path: Path) -> SigningKey:
        """Read the key from a file, after making one if there is none that can be used."""
        try:
            private = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except (FileNotFoundError, ValueError):
            private = None
        if isinstance(private, ec.EllipticCurvePrivateKey) and private.curve.name == _CURVE.name:
            return cls(private)
        key = cls()
        pem = key._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, pem)
        return key

    def sign(self, claims: JsonObject) -> str:
        """Return the claims as a signed token."""
        content = f"{self._header}.{_encode(orjson.dumps(claims))}"
        r, s = decode_dss_signature(self._private.sign(content.encode(), _HASH))
        return f"{content}.{_encode(r.to_bytes(_HALF, 'big') + s.to_bytes(_HALF, 'big'))}"

    def verify(self, token: str) -> JsonObject:
        """Return the claims of a token that this key signed; nothing is said about whether they hold."""
        try:
            header, payload, signature = token.split(".")
            if header != self._header:  # the only one that we write: another algorithm cannot get in by it
                raise BadSignature("another key or algorithm")
            numbers = _decode(signature)
            if len(numbers) != 2 * _HALF:
                raise BadSignature("a signature of another length")
            r, s = (int.from_bytes(numbers[start : start + _HALF], "big") for start in (0, _HALF))
            self._public.verify(encode_dss_signature(r, s), f"{header}.{payload}".encode(), _HASH)
            claims: Any = orjson.loads(_decode(payload))
        except (ValueError, binascii.Error, InvalidSignature) as error:
            raise BadSignature("not a token of this key") from error
        if not isinstance(claims, dict):
            raise BadSignature("the claims are not an object")
        return claims

    def jwks(self) -> JsonObject:
        """Return the JSON Web Key Set by which others verify tokens."""
        numbers = self._public.public_numbers()
        key = {
            "use": "sig",
            "kty": "EC",
            "kid": self.id,
            "crv": "P-256",
            "alg": ALGORITHM,
            "x": _encode(numbers.x.to_bytes(_HALF, "big")),
            "y": _encode(numbers.y.to_bytes(_HALF, "big")),
        }
        return {"keys": [key]}


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
