"""New id tokens from the OpenID Connect provider of a kubeconfig.

Guarantees:
- The provider is always verified: against the authority of the kubeconfig, or those of the machine. So it is asked over
  https alone, at its issuer's URL (OpenID Connect Discovery 1.0, 4.3) as well as at the token endpoint that it names.
- It has `PROVIDER_TIMEOUT` to answer, and may say so much and no more.
- A refresh token that the provider replaces is replaced, for as long as this process lives: the kubeconfig is not ours
  to write.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from trainmaster.controller.kube.auth.proxy import proxy_for
from trainmaster.controller.kube.auth.tls import Pem, client_context
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.controller.kube.rest.errors import TransportError, describe_body
from trainmaster.controller.kube.rest.http1.transport import HttpTransport
from trainmaster.runtime.jsontext import JsonError, load_json

PROVIDER_TIMEOUT: Final = 30.0

_ANSWER_LIMIT: Final = 2**20
_AGAIN: Final = "log in again to get a new one"


async def refresh_tokens(config: Mapping[str, Any], *, clock: Clock) -> tuple[str, str]:
    """Trade the refresh token of an `oidc` auth provider for an id token and the next refresh token.

    Raises:
        ConfigurationError: The provider cannot be reached or refuses.
    """
    issuer, token = str(config.get("idp-issuer-url") or ""), config.get("refresh-token")
    if not issuer or not config.get("client-id") or not token:
        raise ConfigurationError(
            "the id token has expired, and without idp-issuer-url, client-id and refresh-token there is no way to "
            f"refresh it; {_AGAIN}"
        )
    try:
        async with clock.timeout(PROVIDER_TIMEOUT):
            described = await _request(f"{issuer.rstrip('/')}/.well-known/openid-configuration", config, clock=clock)
            form = urlencode({"grant_type": "refresh_token", "refresh_token": token})
            answer = await _request(str(described.get("token_endpoint") or ""), config, clock=clock, form=form)
    except TimeoutError as error:
        raise ConfigurationError(
            f"the identity provider {issuer} gave no answer within {PROVIDER_TIMEOUT:g} s"
        ) from error
    except TransportError as error:
        raise ConfigurationError(f"the identity provider {issuer} cannot be reached: {error}") from error
    if not answer.get("id_token"):
        raise ConfigurationError(f"the identity provider {issuer} gave no id token; {_AGAIN}")
    return str(answer["id_token"]), str(answer.get("refresh_token") or token)


async def _request(url: str, config: Mapping[str, Any], *, clock: Clock, form: str | None = None) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
        is_url = bool(parts.scheme and parts.hostname and (parts.port is None or parts.port))
    except ValueError:
        is_url = False
    if not is_url:
        raise ConfigurationError(f"{url!r}, of the identity provider, is not a URL")
    if parts.scheme != "https":
        raise ConfigurationError(
            f"{url!r}, of the identity provider, is not https; nobody else may read the refresh token and the secret"
        )
    origin = f"{parts.scheme}://{parts.netloc}"
    provider = RestConfig(server=origin, ssl_context=_context(config), source="the identity provider")
    provider.proxy = proxy_for(provider.server)
    headers = {"Accept": "application/json"}
    if form is not None:
        login = f"{config['client-id']}:{config.get('client-secret') or ''}"
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    body = b""
    async with HttpTransport(provider, clock=clock) as transport:
        response = await transport.send(
            "GET" if form is None else "POST",
            urlunsplit(("", "", parts.path or "/", parts.query, "")),
            params={},
            headers=headers,
            body=None if form is None else form.encode(),
            streaming=False,
        )
        try:
            async for chunk in response.chunks():
                body += chunk
                if len(body) > _ANSWER_LIMIT:
                    break
        finally:
            response.close()
    return _decode(url, response.status, body)


def _context(config: Mapping[str, Any]) -> ssl.SSLContext:
    data, file = config.get("idp-certificate-authority-data"), config.get("idp-certificate-authority")
    try:
        if data:
            return client_context(Pem("idp-certificate-authority-data", base64.b64decode(data)))
        return client_context(Pem.read(Path(file)) if file else None)
    except (ConfigurationError, ValueError) as error:
        raise ConfigurationError(f"for the identity provider, {error}") from error


def _decode(url: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        answer = load_json(body)
    except JsonError:
        answer = None
    if status == 200 and isinstance(answer, dict):
        return answer
    # Of a JSON answer only the error is shown: the rest may hold tokens.
    reason = str(answer.get("error", "")) if isinstance(answer, dict) else describe_body(body)
    raise ConfigurationError(f"the identity provider refused at {url}: {status} {reason}; {_AGAIN}")
