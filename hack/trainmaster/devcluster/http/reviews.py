"""Reviews: questions to the API server that are asked by creating an object which is answered and never stored.

Guarantees:
- authorization reviews say yes: the embedded cluster stores RBAC objects and enforces none of them;
- a token review accepts the tokens that the server accepts, and nothing else;
- a question that lacks its essential part is refused, not answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainmaster.devcluster import errors
from trainmaster.devcluster.errors import FieldError
from trainmaster.devcluster.http.authentication import Authenticator, User
from trainmaster.devcluster.http.discovery import ServedResource
from trainmaster.devcluster.http.routing import RequestTarget
from trainmaster.runtime.jsontree import JsonObject

_ALLOWED = {"allowed": True, "reason": "the embedded cluster does not enforce RBAC"}


def _resource(group: str, kind: str, *, namespaced: bool = False) -> ServedResource:
    return ServedResource(
        group=group,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        singular=kind.lower(),
        namespaced=namespaced,
        verbs=("create",),
    )


REVIEWS = (
    _resource("authentication.k8s.io", "TokenReview"),
    _resource("authentication.k8s.io", "SelfSubjectReview"),
    _resource("authorization.k8s.io", "SubjectAccessReview"),
    _resource("authorization.k8s.io", "SelfSubjectAccessReview"),
    _resource("authorization.k8s.io", "LocalSubjectAccessReview", namespaced=True),
    _resource("authorization.k8s.io", "SelfSubjectRulesReview"),
)
"""The kinds that are served here, for discovery."""

_BY_PATH = {(each.group, each.version, each.plural): each for each in REVIEWS}


class Reviewer:
    """Answers reviews."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._answers: Mapping[str, Callable[[JsonObject, User], JsonObject]] = {
            "TokenReview": self._token,
            "SelfSubjectReview": lambda _, user: {"userInfo": user.info()},
            "SubjectAccessReview": _subject_access,
            "SelfSubjectAccessReview": _access,
            "LocalSubjectAccessReview": _subject_access,
            "SelfSubjectRulesReview": _rules,
        }

    def find(self, target: RequestTarget) -> ServedResource | None:
        """Return the review kind that a path names."""
        return _BY_PATH.get((target.group, target.version, target.plural))

    def answer(self, review: ServedResource, body: JsonObject, *, user: User) -> JsonObject:
        """Return the object with its status filled in."""
        spec = body.get("spec") or {}
        if not isinstance(spec, dict):
            raise errors.bad_request("spec must be an object")
        return {
            "kind": review.kind,
            "apiVersion": review.group_version,
            "metadata": body.get("metadata") or {},
            "spec": spec,
            "status": self._answers[review.kind](spec, user),
        }

    def _token(self, spec: JsonObject, _user: User) -> JsonObject:
        token = spec.get("token")
        if not isinstance(token, str) or not token:
            raise errors.bad_request("token is required for TokenReview in authentication")
        user = self._authenticator.user_of(token)
        if user is None:
            return {"authenticated": False, "error": "the token is not one of this cluster"}
        return {"authenticated": True, "user": user.info()}


def _access(spec: JsonObject, _user: User) -> JsonObject:
    _require(
        _asks(spec),
        "spec.resourceAttributes",
        "exactly one of nonResourceAttributes or resourceAttributes must be specified",
    )
    return dict(_ALLOWED)


def _subject_access(spec: JsonObject, user: User) -> JsonObject:
    _require(
        bool(spec.get("user") or spec.get("groups")), "spec.user", "at least one of user or group must be specified"
    )
    return _access(spec, user)


def _rules(spec: JsonObject, _user: User) -> JsonObject:
    _require(bool(spec.get("namespace")), "spec.namespace", "a namespace must be specified")
    return {
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    }


def _asks(spec: JsonObject) -> bool:
    given: list[Any] = [spec.get("resourceAttributes"), spec.get("nonResourceAttributes")]
    return sum(bool(each) for each in given) == 1


def _require(condition: bool, field: str, detail: str) -> None:
    if not condition:
        problem = FieldError(field, "Invalid", None, detail)
        raise errors.invalid("authorization.k8s.io", "SubjectAccessReview", "", [problem])
