"""Token reviews: which pod does a token belong to? The API server knows (TokenReview), nobody else is asked.

Guarantees:
- trainer S4: there is no discovery of issuers, so the manager's own credentials go to the API server only.
- Only a token that the API server has authenticated for exactly this audience counts. What a token says about itself
  is looked at before that, to spare the API server tokens that cannot be good; it never makes one good.
- Reviews are cached for a minute at most, never beyond the end of the token, by digest: no token stays in memory.
- A token is reviewed once, however many requests bring it at the same time.
- trainer S2: a token that is not bound to a pod is nobody's.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cachetools import TLRUCache

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import BadRequest, Invalid, KubeError
from trainmaster.controller.server.authentication import object_of, review_token, token_digest
from trainmaster.controller.server.singleflight import SingleFlight
from trainmaster.metrics.statusserver import ReviewOutcome, count_review
from trainmaster.runtime.jsontext import load_json
from trainmaster.runtime.jsontree import JsonObject

ACCEPTED_FOR: Final = 60.0
REFUSED_FOR: Final = 10.0
"""Seconds for which a review is cached."""

CACHE_SIZE: Final = 4096

TokenKey: TypeAlias = tuple[bytes, str]
"""Digest of a token, and its audience."""

_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The pod that a token is bound to."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class _Review:
    pod: PodIdentity | None
    seconds: float
    """For which it is good."""


class TokenReviewer:
    """Has tokens reviewed by the API server.

    Args:
        client: Where tokens are reviewed.
        clock: The time.
        count: Told the outcome of each review.
    """

    def __init__(
        self, client: KubeClient, *, clock: Clock, count: Callable[[ReviewOutcome], object] = count_review
    ) -> None:
        self._client = client
        self._clock = clock
        self._count = count
        self._cache: TLRUCache[TokenKey, _Review] = TLRUCache(
            CACHE_SIZE, ttu=lambda _key, review, now: now + review.seconds, timer=clock.monotonic
        )
        self._reviewing: SingleFlight[TokenKey] = SingleFlight()

    def may_be_good(self, token: str, *, audience: str) -> bool:
        """Tell whether a token is worth a review: it says that it is good, and none has just refused it."""
        if not self._lifetime(token, audience):
            return False
        cached = self._cache.get(token_key(token, audience))
        return cached is None or cached.pod is not None

    async def review(self, token: str, *, audience: str) -> PodIdentity | None:
        """Return the pod that a token of that audience is bound to; None if the token is not good.

        Raises:
            KubeError: The API server could not be asked.
        """
        left = self._lifetime(token, audience)
        if not left:
            return None
        key = token_key(token, audience)
        async with self._reviewing.turn(key):
            cached = self._cache.get(key)
            if cached is not None:
                return cached.pod
            pod = await self._request(token, _claims(token), audience)
            self._cache[key] = _Review(pod, min(ACCEPTED_FOR, left) if pod else REFUSED_FOR)
        return pod

    def _lifetime(self, token: str, audience: str) -> float:
        """Return the seconds for which a token says that it is good for an audience; zero if it does not."""
        claims = _claims(token)
        if audience not in _texts(claims.get("aud")):
            return 0.0
        return max(0.0, _number(claims, "exp") - self._clock.now().timestamp())

    async def _request(self, token: str, claims: JsonObject, audience: str) -> PodIdentity | None:
        try:
            status = await review_token(self._client, token, audiences=[audience])
        except (BadRequest, Invalid):
            self._count("refused")
            return None
        except KubeError:
            self._count("failed")
            raise
        pod = None
        # An authenticator that knows nothing of audiences returns none: its tokens are for everybody.
        if status.get("authenticated") is True and audience in _texts(status.get("audiences")):
            pod = _pod(object_of(status.get("user")), claims)
        self._count("accepted" if pod else "refused")
        return pod


def _pod(user: JsonObject, claims: JsonObject) -> PodIdentity | None:
    """Read the pod from what the API server says about the user; from the token itself where it is too old to say."""
    username = user.get("username")
    if not isinstance(username, str) or not username.startswith(_ACCOUNT):
        return None
    namespace = username.removeprefix(_ACCOUNT).partition(":")[0]
    extra = object_of(user.get("extra"))
    names, uids = _texts(extra.get(_POD_NAME)), _texts(extra.get(_POD_UID))
    if not names and not uids:
        bound = object_of(object_of(claims.get("kubernetes.io")).get("pod"))
        names, uids = _texts([bound.get("name")]), _texts([bound.get("uid")])
    if len(names) != 1 or len(uids) != 1:
        return None
    return PodIdentity(namespace, names[0], uids[0])


def token_key(token: str, audience: str) -> TokenKey:
    """Return what a token and its audience are known by; the token cannot be told from it."""
    return token_digest(token), audience


def _claims(token: str) -> JsonObject:
    """Read what a token says about itself, without believing it; nothing if it is no JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        return object_of(load_json(base64.b64decode(padded, altchars=b"-_", validate=True)))
    except (binascii.Error, ValueError):
        return {}


def _number(claims: JsonObject, name: str) -> float:
    value = claims.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _texts(value: Any) -> list[str]:
    """Read a list of texts, or a single one, which RFC 7519 allows for an audience."""
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str) and text]
