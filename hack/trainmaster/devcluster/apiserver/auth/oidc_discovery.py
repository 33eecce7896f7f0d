"""Tokens over HTTP: requests for them, and the documents by which others verify them (OpenID Connect discovery)."""

from __future__ import annotations

from aiohttp import web

from trainmaster.devcluster.apiserver.auth.jwt import ALGORITHM
from trainmaster.devcluster.apiserver.auth.serviceaccount_tokens import ISSUER, AccountTokens
from trainmaster.devcluster.apiserver.http.bodies import read_object
from trainmaster.devcluster.apiserver.http.request_info import RequestTarget
from trainmaster.devcluster.apiserver.http.responses import json_response

_KEYS_PATH = "/openid/v1/jwks"


class Identity:
    """Answers the requests about the tokens of service accounts."""

    def __init__(self, tokens: AccountTokens) -> None:
        self._tokens = tokens

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, all for GET."""
        return [web.get("/.well-known/openid-configuration", self.configuration), web.get(_KEYS_PATH, self.keys)]

    async def request_token(self, request: web.Request, target: RequestTarget) -> web.Response:
        """Answer a POST to the token subresource of a service account."""
        body = await read_object(request, duplicates=None)
        return json_response(self._tokens.answer(target.namespace or "", target.name or "", body), status=201)

    async def configuration(self, request: web.Request) -> web.Response:
        """Answer /.well-known/openid-configuration."""
        document = {
            "issuer": ISSUER,
            "jwks_uri": f"{request.scheme}://{request.host}{_KEYS_PATH}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }
        return json_response(document)

    async def keys(self, _request: web.Request) -> web.Response:
        """Answer /openid/v1/jwks."""
        return json_response(self._tokens.jwks(), content_type="application/jwk-set+json")
