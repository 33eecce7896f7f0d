"""The proxy subresource of pods and Services: a request is passed on to what listens there, and its response back.

    /api/v1/namespaces/NS/pods/[SCHEME:]NAME[:PORT]/proxy/PATH
    /api/v1/namespaces/NS/services/[SCHEME:]NAME[:PORT]/proxy/PATH

Guarantees:
- bodies are streamed both ways, and a client that goes away ends the request to the other side;
- the credentials of the client stay here; the certificate of the other side is not verified, as with kube-apiserver;
- whom nobody reaches is 503 with the reason, and a response that ends too early breaks the connection;
- what a pod answers about `Location` leads back through the proxy.

Not as a real server: requests to upgrade the connection are 501, and links in HTML are not rewritten.
"""

from __future__ import annotations

from typing import Final, Protocol
from urllib.parse import quote, unquote, urlsplit

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.admission.webhook import (
    Address,
    ServiceResolver,
    ServiceUnresolvable,
    connection_error_text,
)
from trainmaster.devcluster.apiserver.http.responsewriters import start_response
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import PODS, SERVICES, GroupResource
from trainmaster.runtime.jsontree import JsonObject

_CONNECT_TIMEOUT: Final = 30.0
"""Seconds, as in kube-apiserver; how long the other side takes after that is its own business."""

_CHUNK: Final = 64 * 1024
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LARGEST_PORT: Final = 65535
_UNESCAPED: Final = "/-_.~$&+,:;=@"
"""What the URLs of Go have in paths as it is."""

_HOP_BY_HOP: Final = frozenset(
    map(
        str.lower,
        (
            *(hdrs.CONNECTION, hdrs.KEEP_ALIVE, hdrs.PROXY_AUTHENTICATE, hdrs.PROXY_AUTHORIZATION),
            *("Proxy-Connection", hdrs.TE, hdrs.TRAILER, hdrs.TRANSFER_ENCODING, hdrs.UPGRADE),
        ),
    )
)
_OWN_TO_SERVER: Final = ("authorization", "impersonate-")
"""Beginnings of the headers that authentication and impersonation have used up."""

_CORS: Final = "access-control-allow-"


class ResourceLocator(ServiceResolver, Protocol):
    """Finds where pods and Services really listen."""

    def locate(self, namespace: str, name: str, address: Address) -> Address:
        """Return where a pod listens that says it listens at an address."""


class ProxyHandler:
    """Passes requests on.

    Args:
        api: Where pods and Services are.
        locator: Finds where they listen.
    """

    def __init__(self, api: Api, locator: ResourceLocator) -> None:
        self._api = api
        self._locator = locator

    async def handle(
        self, request: web.Request, resource: GroupResource, *, namespace: str, identifier: str
    ) -> web.StreamResponse:
        """Handle one request; `identifier` is `[SCHEME:]NAME[:PORT]`."""
        scheme, name, port = _split_scheme_name_port(resource, identifier)
        if resource == PODS:
            address = self._pod_address(namespace, name, port, scheme)
        else:
            address = self._service_address(namespace, name, port)
        # The beginning of the path is /api/v1/namespaces/NS/RESOURCE/NAME/proxy.
        segments = request.rel_url.raw_path.split("/", 8)
        if len(segments) < 9:
            query = f"?{request.rel_url.raw_query_string}" if request.rel_url.raw_query_string else ""
            return web.Response(status=301, headers={hdrs.LOCATION: f"{request.rel_url.raw_path}/{query}"})
        if "upgrade" in request.headers.get(hdrs.CONNECTION, "").lower():
            raise errors.not_implemented(f"upgrades of connections in the proxy subresource of {resource}")
        path = "/" + quote(unquote(segments[8]), safe=_UNESCAPED)
        url = URL.build(
            scheme=scheme,
            host=address.host,
            port=address.port,
            path=path,
            query_string=request.rel_url.raw_query_string,
            encoded=True,
        )
        return await _pass_on(request, url, prefix="/".join(segments[:8]))

    def _pod_address(self, namespace: str, name: str, port: str, scheme: str) -> Address:
        pod = self._api.get(PODS, namespace, name)
        ip = (pod.get("status") or {}).get("podIP")
        if not ip:
            raise errors.bad_request("address not allowed")
        return self._locator.locate(namespace, name, Address(ip, _port_of(pod, port) or _DEFAULT_PORTS[scheme]))

    def _service_address(self, namespace: str, name: str, port: str) -> Address:
        service = self._api.get(SERVICES, namespace, name)
        ports = service["spec"].get("ports") or ()
        if port.isascii() and port.isdecimal():
            number = int(port)
        else:
            found = next((each["port"] for each in ports if each.get("name", "") == port), None)
            if found is None:
                raise errors.service_unavailable(f"no endpoints available for service {errors.quote(name)}")
            number = found
        try:
            return self._locator.resolve(namespace=namespace, name=name, port=number)
        except ServiceUnresolvable as error:
            raise errors.service_unavailable(str(error)) from error


def _split_scheme_name_port(resource: GroupResource, identifier: str) -> tuple[str, str, str]:
    scheme, name, port = "", identifier, ""
    match identifier.split(":"):
        case [name]:
            pass
        case [name, port]:
            pass
        case [scheme, name, port]:
            pass
        case _:
            name = ""
    if not name or scheme not in {"", *_DEFAULT_PORTS}:
        raise errors.bad_request(f"invalid {str(resource).removesuffix('s')} request {errors.quote(identifier)}")
    return scheme or "http", name, port


def _port_of(pod: JsonObject, wanted: str) -> int | None:
    """Return a port of a pod: the one that is wanted, or its first one, or none."""
    if not wanted:
        containers = pod["spec"].get("containers") or ()
        return next((each["ports"][0]["containerPort"] for each in containers if each.get("ports")), None)
    # Names of ports are not looked up: only Services have them resolved.
    if not (wanted.isascii() and wanted.isdecimal()):
        raise _unreachable(f"dial tcp: lookup tcp/{wanted}: unknown port")
    if len(wanted) > 5 or int(wanted) > _LARGEST_PORT:
        raise _unreachable(f"dial tcp: address {wanted}: invalid port")
    return int(wanted)


def _unreachable(reason: str) -> errors.StatusError:
    return errors.service_unavailable(f"error trying to reach service: {reason}")


async def _pass_on(request: web.Request, url: URL, *, prefix: str) -> web.StreamResponse:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=False, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT),
        skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )
    async with session:
        try:
            upstream = await session.request(
                request.method,
                url,
                headers=_request_headers(request, forwarded=prefix + url.raw_path),
                data=request.content if request.can_read_body else None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(connection_error_text(error)) from error
        async with upstream:
            response = web.StreamResponse(
                status=upstream.status,
                reason=upstream.reason,
                headers=_response_headers(
                    upstream.headers, url, host=request.headers.get(hdrs.HOST, ""), prefix=prefix
                ),
            )
            await start_response(request, response)
            try:
                async for chunk in upstream.content.iter_chunked(_CHUNK):
                    await response.write(chunk)
            except aiohttp.ClientError as error:
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError("the other side ended its response halfway") from error
            return response


def _request_headers(request: web.Request, *, forwarded: str) -> CIMultiDict[str]:
    headers = _end_to_end(request.headers)
    for name in [name for name in headers if name.lower().startswith(_OWN_TO_SERVER)]:
        headers.popall(name, None)
    headers["X-Forwarded-Uri"] = forwarded
    if request.remote:
        before = headers.popall(hdrs.X_FORWARDED_FOR, [])
        headers[hdrs.X_FORWARDED_FOR] = ", ".join([*before, request.remote])
    return headers


def _response_headers(headers: CIMultiDictProxy[str], url: URL, *, host: str, prefix: str) -> CIMultiDict[str]:
    passed = _end_to_end(headers)
    for name in [name for name in passed if name.lower().startswith(_CORS)]:
        passed.popall(name, None)
    if location := passed.get(hdrs.LOCATION):
        passed[hdrs.LOCATION] = _rewritten(location, {url.authority, host}, prefix)
    return passed


def _end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Return headers without those that are about one connection."""
    named = {each.strip().lower() for value in headers.getall(hdrs.CONNECTION, ()) for each in value.split(",")}
    return CIMultiDict(
        (name, value)
        for name, value in headers.items()
        if name.lower() not in _HOP_BY_HOP and name.lower() not in named
    )


def _rewritten(location: str, own_hosts: set[str], prefix: str) -> str:
    """Return a Location as clients of the proxy find it; what leads elsewhere stays."""
    parts = urlsplit(location)
    if (parts.netloc and parts.netloc not in own_hosts) or not parts.path.startswith("/"):
        return location
    path = parts.path if parts.path.startswith(prefix) else prefix + parts.path
    return parts._replace(scheme="", netloc="", path=path).geturl()
