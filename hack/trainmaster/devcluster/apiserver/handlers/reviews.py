"""Reviews, such as SubjectAccessReview and TokenReview: objects that are created to be evaluated, and never stored.

Guarantees:
- authorization reviews have the decision that the authorizer of the server takes about a request, whoever it is about;
- a token review accepts the tokens that the server knows, for the audiences that they name, and nothing else;
- a review that lacks its essential part is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.auth.authorizer import Attributes, Authorizer, User
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ISSUER, InvalidToken
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.filters.authentication import USER, Authenticator
from trainmaster.devcluster.apiserver.handlers.discovery import ApiResource
from trainmaster.devcluster.apiserver.http.bodies import read_object
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.runtime.jsontree import JsonObject


def _resource(group: str, kind: str, *, namespaced: bool = False) -> ApiResource:
    return ApiResource(
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


class ReviewHandler:
    """Handles the creation of reviews."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._evaluators: Mapping[str, Callable[[JsonObject, User], JsonObject]] = {
            "TokenReview": self._token,
            "SelfSubjectReview": lambda _, user: {"userInfo": user.info()},
            "SubjectAccessReview": self._subject_access,
            "SelfSubjectAccessReview": self._access,
            "LocalSubjectAccessReview": self._subject_access,
            "SelfSubjectRulesReview": self._rules,
        }

    def find(self, info: RequestInfo) -> ApiResource | None:
        """Return the review kind that a path names."""
        return _BY_PATH.get((info.group, info.version, info.resource))

    async def create(self, request: web.Request, review: ApiResource, info: RequestInfo) -> web.Response:
        """Handle a POST; nothing else is possible with a review."""
        if request.method != "POST":
            raise errors.method_not_allowed()
        body = await read_object(request)
        return json_response(self._evaluated(review, body, namespace=info.namespace, user=request[USER]), status=201)

    def _evaluated(self, review: ApiResource, body: JsonObject, *, namespace: str | None, user: User) -> JsonObject:
        """Return the object with its status filled in."""
        spec = body.get("spec") or {}
        if not isinstance(spec, dict):
            raise errors.bad_request("spec must be an object")
        if review.namespaced:
            _check_namespace(spec, namespace)
        return {
            "kind": review.kind,
            "apiVersion": review.group_version,
            "metadata": body.get("metadata") or {},
            "spec": spec,
            "status": self._evaluators[review.kind](spec, user),
        }

    def _token(self, spec: JsonObject, _user: User) -> JsonObject:
        token, audiences = spec.get("token"), spec.get("audiences") or [ISSUER]
        if not isinstance(token, str) or not token:
            raise errors.bad_request("token is required for TokenReview in authentication")
        if not isinstance(audiences, list):
            raise errors.bad_request("spec.audiences must be a list of strings")
        try:
            user, common = self._authenticator.authenticate_token(token, audiences=audiences)
        except InvalidToken as error:
            general, text = "invalid bearer token", str(error)
            return {
                "authenticated": False,
                "user": {},
                "error": general if text == general else f"[{general}, {text}]",
            }
        return {"authenticated": True, "user": user.info(), "audiences": common}

    def _subject_access(self, spec: JsonObject, _user: User) -> JsonObject:
        name, groups = spec.get("user") or "", spec.get("groups") or []
        _require(bool(name or groups), "spec.user", "at least one of user or group must be specified")
        extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
        return self._access(spec, User(name, tuple(groups), spec.get("uid") or "", extra))

    def _access(self, spec: JsonObject, user: User) -> JsonObject:
        decision = self._authorizer.authorize(user, _attributes(spec))
        status: JsonObject = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return status

    def _rules(self, spec: JsonObject, user: User) -> JsonObject:
        namespace = spec.get("namespace")
        _require(bool(namespace), "spec.namespace", "a namespace must be specified")
        rules = self._authorizer.rules_for(user, str(namespace))
        return {
            "resourceRules": [
                {field: rule[field] for field in _RESOURCE_RULE if field in rule}
                for rule in rules
                if "nonResourceURLs" not in rule
            ],
            "nonResourceRules": [
                {"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]}
                for rule in rules
                if "nonResourceURLs" in rule
            ],
            "incomplete": False,
        }


_RESOURCE_RULE = ("verbs", "apiGroups", "resources", "resourceNames")


def _attributes(spec: JsonObject) -> Attributes:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    _require(
        bool(resource) != bool(path),
        "spec.resourceAttributes",
        "exactly one of nonResourceAttributes or resourceAttributes must be specified",
    )
    given: Any = resource or path
    _require(isinstance(given, dict), "spec", "the attributes must be an object")
    texts = {field: value for field, value in given.items() if field in _ATTRIBUTES and isinstance(value, str)}
    return Attributes(**{"verb": "", **texts})


_ATTRIBUTES = frozenset({"verb", "group", "version", "resource", "subresource", "namespace", "name", "path"})


def _check_namespace(spec: JsonObject, namespace: str | None) -> None:
    """Refuse a review in one namespace that is about another."""
    if not namespace:
        raise errors.bad_request("namespace is required on this type: localsubjectaccessreviews")
    reviewed = (spec.get("resourceAttributes") or {}).get("namespace")
    if reviewed != namespace:
        raise errors.bad_request(f"spec.resourceAttributes.namespace must match namespace: {namespace}")


def _require(condition: bool, field: str, detail: str) -> None:
    if not condition:
        problem = FieldError(field, "Invalid", None, detail)
        raise errors.invalid("authorization.k8s.io", "SubjectAccessReview", "", [problem])
