"""Values of options as Go writes them: durations, addresses, names; each knows what is allowed."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Annotated, Final
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, Field

from trainmaster.controller.resources import RUNTIMES, TRAINJOBS
from trainmaster.runtime.api.meta import duration_seconds
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.jobs.constants import ENTRY_POINT_GROUP as JOB_KINDS
from trainmaster.runtime.jobs.constants import installed_kinds
from trainmaster.runtime.names import dns_label, dns_subdomain

CIPHER_SUITES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    }
)
"""The secure suites of TLS 1.2, with the names that OpenSSL has for them."""

TLS_1_3_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""Those of TLS 1.3 are all secure, and neither Go nor Python lets one choose."""


OFF: Final = "0"
"""The address that switches a server off."""

HTTP: Final = "http/1.1"
"""The protocol of all servers, by its name in ALPN."""

LONGEST_SHUTDOWN_DELAY: Final = 25.0
"""Seconds; after 30 from the signal Kubernetes kills a pod, and the servers end in between."""

_SHORTEST_LIMIT: Final = 0.01
_LONGEST_LIMIT: Final = 60.0
"""Seconds that one call of a plugin may take at least, since machines have their pauses, and at most."""

_TRACES_PATH: Final = "/v1/traces"
"""Where a receiver of OTLP over HTTP takes traces, by default."""


def parse_address(address: str) -> tuple[str | None, int]:
    """Split `host:port`, or `:port` for all interfaces.

    Raises:
        ValueError: It is not of that form.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"address {address!r} must be host:port or :port")
    return host.strip("[]") or None, int(port)


def is_loopback(host: str) -> bool:
    """Tell whether a name or an address is one of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"


def traces_url(endpoint: str) -> str:
    """Return the URL that traces are posted to: `host:port` is HTTP, and the path is OTLP's unless there is one.

    Raises:
        ValueError: It is neither `host:port` nor a URL, or has something in it that does not belong there.
    """
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
        has_port = parts.port is not None
    except ValueError:
        raise ValueError("it has no host, or no port, that can be; write it as collector:4318, or as a URL") from None
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("must have neither credentials nor a query; OTEL_EXPORTER_OTLP_HEADERS is for credentials")
    if parts.scheme not in ("http", "https") or not parts.hostname or not ("://" in endpoint or has_port):
        raise ValueError(f"{endpoint!r} must be host:port, as collector:4318, or a URL of http or https")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or _TRACES_PATH, "", ""))


def _bindable(address: str) -> str:
    if address != OFF:
        parse_address(address)
    return address


def _collector(endpoint: str) -> str:
    if endpoint:
        traces_url(endpoint)
    return endpoint


def _positive(duration: str) -> str:
    if not duration_seconds(duration) > 0:
        raise ValueError("must be longer than zero")
    return duration


def _limiting(duration: str) -> str:
    if not _SHORTEST_LIMIT <= duration_seconds(duration) <= _LONGEST_LIMIT:
        raise ValueError(f"must be between {_SHORTEST_LIMIT:g}s and {_LONGEST_LIMIT:g}s")
    return duration


def _readable(duration: str) -> str:
    try:
        duration_seconds(duration)
    except ValueError:
        example = "for instance 15s, 1m30s or 500ms"
        raise ValueError(f"must be a duration as Go writes it, {example}, got {duration!r}") from None
    return duration


def _drainable(duration: str) -> str:
    if duration_seconds(duration) > LONGEST_SHUTDOWN_DELAY:
        raise ValueError(f"{duration} must not be longer than {LONGEST_SHUTDOWN_DELAY:g}s: pods are killed after 30s")
    return duration


def _endpoint(name: str) -> str:
    """Read the name of a probe, with the slash before it or without."""
    if not re.fullmatch(r"/?[A-Za-z0-9_.-]+", name):
        raise ValueError(f"{name!r} must be one part of a path, as readyz")
    return name.removeprefix("/")


def _file(name: str) -> str:
    if not name or name.endswith("/") or "\0" in name:
        raise ValueError(f"{name!r} is no name of a file")
    return name


def _namespace(name: str) -> str:
    problems = dns_label(name)
    if problems:
        raise ValueError(f"{name!r} is no name of a namespace: {'; '.join(problems)}")
    return name


def _no_repetition(names: list[str]) -> list[str]:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{', '.join(repeated)} must be named once only")
    return names


def _known_kind(key: str) -> str:
    known = [f"{each.kind}.{each.group}" for each in (TRAINJOBS, *RUNTIMES.values())]
    if key not in known:
        known += job_controllers()
    if key not in known:
        raise ValueError(f"there is no controller of {key!r} {did_you_mean(key, known)}")
    return key


def job_controllers() -> list[str]:
    """Return what the controllers of the installed kinds of jobs are called, for instance `PyTorchJob.kubeflow.org`."""
    found = []
    for point in discover(JOB_KINDS):
        with suppress(Exception):  # whoever serves the kind tells what is wrong with it
            kind = point.load()
            found.append(f"{kind.kind}.{kind.group}")
    return found


def _known_scheme(name: str) -> str:
    """Read the name of a job kind as the Training Operator does: in any case."""
    known = installed_kinds()
    if name.lower() not in known:
        raise ValueError(f"scheme {name} is not supported {did_you_mean(name.lower(), known)}")
    return name.lower()


def _scheduler(name: str) -> str:
    if re.search(r"\s", name):
        raise ValueError(f"{name!r} is no name of a scheduler: it has blanks")
    return name


def _domain(name: str) -> str:
    """Read the domain of a cluster, with the dot at its end or without."""
    domain = name.removesuffix(".")
    problems = dns_subdomain(domain) if domain else []
    if problems:
        raise ValueError(f"{name!r} is no domain: {'; '.join(problems)}")
    return domain


def _known_suite(suite: str) -> str:
    known = [*CIPHER_SUITES, *sorted(TLS_1_3_SUITES)]
    if suite not in known:
        raise ValueError(f"{suite!r} is unknown or not secure; known are {', '.join(known)}")
    return suite


def _with_http(protocols: list[str]) -> list[str]:
    if protocols and HTTP not in protocols:
        raise ValueError(f"{HTTP} must be among them: the servers speak nothing else")
    return protocols


Port = Annotated[int, Field(ge=1, le=65535)]
NotNegative = Annotated[float, Field(ge=0)]
Duration = Annotated[str, AfterValidator(_readable)]
TimeLimit = Annotated[Duration, AfterValidator(_limiting)]
Period = Annotated[Duration, AfterValidator(_positive)]
ShutdownDelay = Annotated[Duration, AfterValidator(_drainable)]
Address = Annotated[str, AfterValidator(_bindable)]
Collector = Annotated[str, AfterValidator(_collector)]
HistoryFile = Annotated[str, AfterValidator(_file)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]
KindName = Annotated[str, AfterValidator(_known_kind)]
JobKindName = Annotated[str, AfterValidator(_known_scheme)]
JobKindNames = Annotated[list[JobKindName], AfterValidator(_no_repetition)]
SchedulerName = Annotated[str, AfterValidator(_scheduler)]
Domain = Annotated[str, AfterValidator(_domain)]
CipherSuite = Annotated[str, AfterValidator(_known_suite)]
Namespaces = Annotated[list[Annotated[str, AfterValidator(_namespace)]], AfterValidator(_no_repetition)]
Protocols = Annotated[list[str], AfterValidator(_with_http)]
