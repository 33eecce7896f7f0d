"""Service-account tokens: issued on request, bound to an account and perhaps to a pod, and verified.

Guarantees:
- A token is good for exactly the audiences that it names, until it expires.
- It ends with what it is bound to: it is refused once the account or the bound object is gone or was replaced by
  another of the same name. What is being deleted keeps its tokens for another minute, to end its work.
- A token is bound to a pod only if the pod runs under the account.

Signing JSON Web Tokens: ES256 with one key, which lives as long as the cluster's state.

Guarantees:
- only tokens that were signed with this key, by the algorithm of this key, are ever accepted;
- the file of the key is readable by its owner only, from the moment it exists.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.authorizer import AUTHENTICATED, User, make_group_names, make_username
from trainmaster.devcluster.apiserver.errors import FieldError, StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, GroupResource
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.certificates import write_private
from trainmaster.runtime.jsontree import JsonObject

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Who issues the tokens, and the audience of those that are meant for the API server itself."""

DEFAULT_SECONDS = 3600
_LEAST_SECONDS, _MOST_SECONDS = 600, 1 << 32
_DELETION_LEEWAY = timedelta(seconds=60)
_BINDABLE = {"Pod": PODS, "Secret": SECRETS, "Node": NODES}
_PRIVATE_CLAIMS = "kubernetes.io"
_EXTRA = "authentication.kubernetes.io"

ALGORITHM = "ES256"

_CURVE = ec.SECP256R1()
_HASH = ec.ECDSA(hashes.SHA256())
_HALF = 32
"""Bytes of each of the two numbers of a signature."""


class InvalidToken(Exception):
    """A token that does not let anyone in; the text says why."""


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token and the span of its life."""

    token: str
    issued: datetime
    expires: datetime


class ServiceAccountTokens:
    """Issues and verifies the tokens of the service accounts of one cluster."""

    def __init__(self, api: Api, key: SigningKey) -> None:
        self._api = api
        self._key = key

    # Issuing

    def create(self, namespace: str, name: str, request: JsonObject) -> JsonObject:
        """Issue the token that a TokenRequest for an account asks for; returns the request with its status."""
        metadata, spec = request.get("metadata") or {}, request.get("spec") or {}
        _check_request(metadata, spec, namespace, name)
        account = self._account(namespace, name)
        audiences = spec.get("audiences") or [ISSUER]
        seconds = spec.get("expirationSeconds")
        seconds = DEFAULT_SECONDS if seconds is None else seconds
        reference = spec.get("boundObjectRef") or None
        bound = {} if reference is None else self._bound(account, reference)
        issued = self._issue(account, audiences=audiences, seconds=seconds, bound=bound)
        accepted = {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference}
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": timestamp(issued.issued)},
            "spec": accepted,
            "status": {"token": issued.token, "expirationTimestamp": timestamp(issued.expires)},
        }

    def issue_for_pod(
        self, pod: JsonObject, *, audience: str | None = None, seconds: int = DEFAULT_SECONDS
    ) -> IssuedToken:
        """Issue a token that is bound to a pod, for its account; raises a StatusError if there is no such account."""
        namespace = pod["metadata"]["namespace"]
        account = self._account(namespace, pod["spec"].get("serviceAccountName") or "default")
        return self._issue(account, audiences=[audience or ISSUER], seconds=seconds, bound=self._pod_claims(pod))

    def _account(self, namespace: str, name: str) -> JsonObject:
        found = self._find(SERVICE_ACCOUNTS, namespace, name)
        if found is None:
            raise errors.not_found(SERVICE_ACCOUNTS, name)
        return found

    def _bound(self, account: JsonObject, reference: JsonObject) -> JsonObject:
        """Return the claims about the object that a token is to be bound to."""
        kind, name, uid = reference.get("kind", ""), reference.get("name", ""), reference.get("uid")
        resource = _BINDABLE.get(kind)
        if resource is None or reference.get("apiVersion") not in (None, "", "v1"):
            raise errors.bad_request(f"cannot bind token to object of type {reference.get('apiVersion', '')}, {kind}")
        namespace = "" if resource is NODES else account["metadata"]["namespace"]
        found = self._find(resource, namespace, name)
        if found is None:
            raise errors.not_found(resource, name)
        account_given = account["metadata"]["name"]
        if resource is PODS and (found["spec"].get("serviceAccountName") or "default") != account_given:
            raise errors.bad_request(
                f'cannot bind token for serviceaccount "{account_given}" to pod running with different '
                "serviceaccount name."
            )
        if uid and uid != found["metadata"]["uid"]:
            raise errors.conflict(
                resource,
                name,
                f"the UID in the bound object reference ({uid}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
            )
        return self._pod_claims(found) if resource is PODS else {kind.lower(): _identity(found)}

    def _pod_claims(self, pod: JsonObject) -> JsonObject:
        claims = {"pod": _identity(pod)}
        node = self._find(NODES, "", pod["spec"].get("nodeName") or "")
        if node is not None:
            claims["node"] = _identity(node)
        return claims

    def _issue(self, account: JsonObject, *, audiences: Sequence[str], seconds: int, bound: JsonObject) -> IssuedToken:
        metadata = account["metadata"]
        issued = self._api.clock().replace(microsecond=0)
        expires = issued + timedelta(seconds=seconds)
        private = {"namespace": metadata["namespace"], "serviceaccount": _identity(account), **bound}
        claims = {
            "aud": list(audiences),
            "exp": int(expires.timestamp()),
            "iat": int(issued.timestamp()),
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            _PRIVATE_CLAIMS: private,
            "nbf": int(issued.timestamp()),
            "sub": make_username(metadata["namespace"], metadata["name"]),
        }
        return IssuedToken(self._key.sign(claims), issued, expires)

    # Verifying

    def authenticate_token(self, token: str, *, audiences: Sequence[str] = (ISSUER,)) -> tuple[User, list[str]]:
        """Return the user of a token, and those of the audiences that the token is for.

        Raises:
            InvalidToken: It is none of ours, has ended, or is meant for others.
        """
        try:
            claims = self._key.verify(token)
        except BadSignature as error:
            raise InvalidToken("invalid bearer token") from error
        now = self._api.clock().timestamp()
        if now < claims["nbf"]:
            raise InvalidToken("service account token is not valid yet")
        if now > claims["exp"]:
            raise InvalidToken("service account token has expired")
        common = [audience for audience in audiences if audience in claims["aud"]]
        if not common:
            raise InvalidToken(
                f"token audiences {_listed(claims['aud'])} is invalid for the target audiences {_listed(audiences)}"
            )
        private = claims[_PRIVATE_CLAIMS]
        namespace = private["namespace"]
        self._check_lives(SERVICE_ACCOUNTS, namespace, private["serviceaccount"])
        for kind, resource in _BINDABLE.items():
            # A node that is only named, beside a pod, may go without ending the token.
            if (bound := private.get(kind.lower())) and not (resource is NODES and "pod" in private):
                self._check_lives(resource, "" if resource is NODES else namespace, bound)
        return _user_of(claims, private), common

    def _check_lives(self, resource: GroupResource, namespace: str, identity: JsonObject) -> None:
        found = self._find(resource, namespace, identity["name"])
        if found is None or found["metadata"]["uid"] != identity["uid"]:
            raise InvalidToken("service account token has been invalidated")
        deleted = found["metadata"].get("deletionTimestamp")
        if deleted and datetime.fromisoformat(deleted) + _DELETION_LEEWAY < self._api.clock():
            raise InvalidToken("service account token has been invalidated")

    def _find(self, resource: GroupResource, namespace: str, name: str) -> JsonObject | None:
        record = self._api.store.get(ObjectKey(resource, namespace, name))
        return None if record is None else record.object

    # Discovery

    def jwks(self) -> JsonObject:
        """Return the keys by which others verify tokens."""
        return self._key.jwks()


def _check_request(metadata: JsonObject, spec: Any, namespace: str, name: str) -> None:
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        raise errors.bad_request("metadata and spec of a TokenRequest must be objects")
    if (given := metadata.get("name") or name) != name:
        raise errors.bad_request(f"name in URL does not match name in TokenRequest object: {given}")
    if (given := metadata.get("namespace") or namespace) != namespace:
        raise errors.bad_request(f"namespace in URL does not match namespace in TokenRequest object: {given}")
    audiences, seconds = spec.get("audiences"), spec.get("expirationSeconds")
    if audiences is not None and not (isinstance(audiences, list) and all(isinstance(each, str) for each in audiences)):
        raise errors.bad_request("spec.audiences must be a list of strings")
    if seconds is None:
        return
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise errors.bad_request("spec.expirationSeconds must be a whole number")
    if seconds < _LEAST_SECONDS:
        raise _refused(seconds, "may not specify a duration less than 10 minutes")
    if seconds > _MOST_SECONDS:
        raise _refused(seconds, "may not specify a duration larger than 2^32 seconds")


def _refused(seconds: int, detail: str) -> StatusError:
    problem = FieldError("spec.expirationSeconds", "Invalid", seconds, detail)
    return errors.invalid("authentication.k8s.io", "TokenRequest", "", [problem])


def _identity(obj: JsonObject) -> JsonObject:
    return {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


def _user_of(claims: JsonObject, private: JsonObject) -> User:
    extra = {f"{_EXTRA}/credential-id": (f"JTI={claims['jti']}",)}
    for kind in ("node", "pod"):
        if identity := private.get(kind):
            extra[f"{_EXTRA}/{kind}-name"] = (identity["name"],)
            extra[f"{_EXTRA}/{kind}-uid"] = (identity["uid"],)
    groups = (*make_group_names(private["namespace"]), AUTHENTICATED)
    return User(claims["sub"], groups, private["serviceaccount"]["uid"], extra)


def _listed(names: Sequence[str]) -> str:
    return "[" + " ".join(map(errors.quote, names)) + "]"


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
