"""Bearer tokens: how they come with a request, and what the API server says of them (TokenReview).

A token itself is kept nowhere: what is remembered is remembered by its digest.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import BadRequest, Invalid
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)


def policy_rules(needed_by: str, reason: str) -> tuple[PolicyRule, ...]:
    """Return the right that `review_token` needs, for a part that calls it."""
    return (PolicyRule(resource=TOKEN_REVIEWS, verbs=("create",), needed_by=needed_by, reason=reason),)


def bearer_token(header: str | None) -> str:
    """Read the token of an Authorization header: two words of ASCII, the first one `Bearer` in any case."""
    words = (header or "").split()
    return words[1] if len(words) == 2 and words[0].lower() == "bearer" and words[1].isascii() else ""


def token_digest(token: str) -> bytes:
    """Return what a token is known by; the token cannot be told from it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


async def review_token(client: KubeClient, token: str, *, audience: str = "") -> JsonObject | None:
    """Have a token reviewed; returns its user as the API server knows it, None if the token is not good.

    Args:
        client: Where it is reviewed.
        token: The token.
        audience: For whom it must have been issued; empty for the API server itself.

    Raises:
        KubeError: The API server could not be asked.
    """
    spec: JsonObject = {"token": token, **({"audiences": [audience]} if audience else {})}
    review = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": spec}
    try:
        status = object_of((await client.create(TOKEN_REVIEWS, review)).get("status"))
    except (BadRequest, Invalid):
        return None
    if status.get("authenticated") is not True:
        return None
    # An authenticator that knows nothing of audiences returns none: its tokens are for everybody.
    if audience and audience not in texts_of(status.get("audiences")):
        return None
    return object_of(status.get("user"))


def object_of(value: Any) -> JsonObject:
    """Read an object of an answer; an empty one if it is none."""
    return value if isinstance(value, dict) else {}


def texts_of(value: Any) -> list[str]:
    """Read a list of texts, or a single one, which RFC 7519 allows for an audience."""
    values = value if isinstance(value, list) else [value]
    return [text for text in values if isinstance(text, str) and text]
