"""Bearer tokens: how they come with a request, and what the API server says of them (TokenReview).

A token itself is kept nowhere: what is remembered is remembered by its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from trainmaster.controller.kube.rest.client import KubeClient
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


async def review_token(client: KubeClient, token: str, *, audiences: Sequence[str] = ()) -> JsonObject:
    """Have a token reviewed; returns the status of the review.

    Args:
        client: Where it is reviewed.
        token: The token.
        audiences: For whom it must have been issued; none for the API server itself.

    Raises:
        KubeError: The API server could not be asked, or refused the review.
    """
    spec: JsonObject = {"token": token}
    if audiences:
        spec["audiences"] = list(audiences)
    review = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": spec}
    return object_of((await client.create(TOKEN_REVIEWS, review)).get("status"))


def object_of(value: Any) -> JsonObject:
    """Read an object of an answer; an empty one if it is none."""
    return value if isinstance(value, dict) else {}
