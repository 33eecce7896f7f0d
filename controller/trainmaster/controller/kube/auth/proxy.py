"""Which proxy leads to a server, as kubectl decides it.

Guarantees:
- `proxy-url` of the kubeconfig comes first, then `HTTPS_PROXY` or `HTTP_PROXY`, in capitals or small.
- `NO_PROXY` takes names with all below them (`.example.com` and `*.example.com`: only those below), addresses, networks
  (`10.0.0.0/8`) and `*`, each with or without a port. This machine is never behind a proxy.
- A proxy that we cannot use is a `ConfigurationError`, never ignored.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from trainmaster.controller.kube.rest.config import ConfigurationError, Peer


def proxy_for(server: str, *, configured: str | None = None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the URL of the proxy for a server, if there is one."""
    url = urlsplit(server)
    source = "proxy-url in the kubeconfig" if configured else f"{url.scheme.upper()}_PROXY"
    proxy = configured or _variable(source, environment)
    if not proxy or (not configured and _bypassed(server, _variable("NO_PROXY", environment))):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    kind = proxy.partition("://")[0].lower()
    if kind not in {"http", "https"}:
        raise ConfigurationError(
            f"{source} asks for a proxy of the kind {kind!r}, but only http and https are supported; "
            f"use one of these, or list {url.hostname} in NO_PROXY"
        )
    Peer(proxy, f"the proxy of {source}", is_proxy=True)
    return proxy


def _variable(name: str, environment: Mapping[str, str]) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _bypassed(server: str, exceptions: str) -> bool:
    url = urlsplit(server)
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    if host == "localhost":
        return True
    address = _network(host)
    if address is not None and address.is_loopback:
        return True
    for entry in filter(None, (part.strip().lower() for part in exceptions.split(","))):
        name, number = _split_port(entry)
        if not name or number not in {None, port}:
            continue
        network = _network(name)
        if network is not None and address is not None and address.network_address in network:
            return True
        below = name.removeprefix("*") if name.startswith(("*.", ".")) else f".{name}"
        if name in {"*", host} or (network is None and host.endswith(below)):
            return True
    return False


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        port = port.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:
        name, port = entry, ""
    return name, int(port) if port.isdecimal() else None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
