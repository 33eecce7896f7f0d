"""Rules of what a pod has of the network: name resolution, names, and the ports of the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    address,
    forbidden,
    invalid,
    one_of,
    optional_name,
    port_name_problems,
    port_number,
    required,
    subdomain,
)
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label, dns_subdomain

_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_MOST_NAMESERVERS = 3
_MOST_SEARCHES = 32
_LONGEST_SEARCH_LIST = 2048
_LONGEST_HOSTNAME = 64
_PROTOCOLS = ("SCTP", "TCP", "UDP")


def validate_dns(path: str, spec: JsonObject) -> Iterator[FieldError]:
    """Check how a pod resolves names."""
    policy, config = spec.get("dnsPolicy") or "", spec.get("dnsConfig")
    if policy:
        yield from one_of(f"{path}.dnsPolicy", policy, _DNS_POLICIES)
    else:
        yield required(f"{path}.dnsPolicy")
    here = f"{path}.dnsConfig"
    if policy == "None" and config is None:
        yield required(here, "must provide `dnsConfig` when `dnsPolicy` is None")
    elif policy == "None" and not (config or {}).get("nameservers"):
        yield required(f"{here}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
    elif config is not None:
        yield from _dns_config(here, config)


def _dns_config(path: str, config: JsonObject) -> Iterator[FieldError]:
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > _MOST_NAMESERVERS:
        text = f"must not have more than {_MOST_NAMESERVERS} nameservers"
        yield FieldError(f"{path}.nameservers", "Invalid", servers, text)
    for index, server in enumerate(servers):
        yield from address(f"{path}.nameservers[{index}]", server)
    if len(searches) > _MOST_SEARCHES:
        text = f"must not have more than {_MOST_SEARCHES} search paths"
        yield FieldError(f"{path}.searches", "Invalid", searches, text)
    if len(" ".join(searches)) > _LONGEST_SEARCH_LIST:
        text = f"must not have more than {_LONGEST_SEARCH_LIST} characters (including spaces) in the search list"
        yield FieldError(f"{path}.searches", "Invalid", searches, text)
    for index, search in enumerate(searches):
        if search != ".":
            name = search.removesuffix(".")
            yield from invalid(f"{path}.searches[{index}]", name, _search_problems(name))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required(f"{path}.options[{index}]", "must not be empty")


def _search_problems(name: str) -> list[str]:
    """Return what is wrong with a search path, in which labels may begin with underscores and contain them."""
    problems = dns_subdomain(name.replace("_", "a"))
    return [
        problem.replace("characters, '-' or '.'", "characters, '_', '-' or '.'").replace("[a-z0-9]", "[a-z0-9_]")
        for problem in problems
    ]


def validate_host_aliases(path: str, aliases: list[JsonObject]) -> Iterator[FieldError]:
    """Check names that a pod gives to addresses."""
    for index, alias in enumerate(aliases):
        yield from address(f"{path}[{index}].ip", alias.get("ip") or "")
        for position, name in enumerate(alias.get("hostnames") or ()):
            yield from subdomain(f"{path}[{index}].hostnames[{position}]", name)


def validate_hostname(path: str, spec: JsonObject) -> Iterator[FieldError]:
    """Check under which name a pod knows itself."""
    yield from optional_name(spec, path, "hostname", dns_label)
    yield from optional_name(spec, path, "subdomain", dns_label)
    name = spec.get("hostnameOverride")
    if name is None:
        return
    here = f"{path}.hostnameOverride"
    yield from subdomain(here, name)
    if len(name) > _LONGEST_HOSTNAME:
        yield FieldError(here, "TooLong", detail=f"may not be more than {_LONGEST_HOSTNAME} bytes")
    if spec.get("setHostnameAsFQDN"):
        yield forbidden(here, "may not be specified when `setHostnameAsFQDN` is true")
    if spec.get("hostNetwork"):
        yield forbidden(here, "may not be specified when `hostNetwork` is true")


def validate_ports(path: str, ports: list[JsonObject]) -> Iterator[FieldError]:
    """Check the ports of a container; only names must differ."""
    names: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        if name := port.get("name"):
            problems = port_name_problems(name)
            yield from invalid(f"{here}.name", name, problems)
            if not problems and name in names:
                yield FieldError(f"{here}.name", "Duplicate", name)
            names.add(name)
        if number := port.get("containerPort"):
            yield from port_number(f"{here}.containerPort", number)
        else:
            yield required(f"{here}.containerPort")
        if number := port.get("hostPort"):
            yield from port_number(f"{here}.hostPort", number)
        if protocol := port.get("protocol"):
            yield from one_of(f"{here}.protocol", protocol, _PROTOCOLS)
        else:
            yield required(f"{here}.protocol")


def validate_host_ports(containers: Iterable[tuple[str, JsonObject]]) -> Iterator[FieldError]:
    """Check that no port of the host is wanted twice by containers that run together; they come with their paths."""
    taken: set[str] = set()
    for path, container in containers:
        for index, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            text = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if text in taken:
                yield FieldError(f"{path}.ports[{index}].hostPort", "Duplicate", text)
            taken.add(text)


def validate_host_network(path: str, spec: JsonObject, *, is_pod: bool) -> Iterator[FieldError]:
    """Check that ports are those of the host where its network is used; a template may leave them to the pod."""
    if not spec.get("hostNetwork"):
        return
    for number, container in enumerate(spec.get("containers") or ()):
        for index, port in enumerate(container.get("ports") or ()):
            given = port.get("hostPort") or 0
            if (given or is_pod) and given != (port.get("containerPort") or 0):
                here = f"{path}.containers[{number}].ports[{index}].hostPort"
                yield FieldError(here, "Invalid", given, "must match `containerPort` when `hostNetwork` is true")
