"""The environment of a container: what the pod asks for, on top of a small clean base; and the downward API.

- Nothing of the server's own environment leaks into a container except the search path and a few cache directories.
- `envFrom` comes before `env`, later entries win, and `$(NAME)` sees what was defined before it; `$$` stands for `$`,
  and a reference to an unknown name stays as it is.
- A missing ConfigMap, Secret or key is an error that may go away, unless the reference is optional.
- The downward API says what a pod may learn about itself by `fieldRef` and `resourceFieldRef`, here and in volumes.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, SECRETS, GroupResource
from trainmaster.devcluster.kubelet.container import CreateContainerError
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity, QuantityError

HOST_IP = "127.0.0.1"

_SUBSCRIPTED = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]", re.DOTALL)

Lookup = Callable[[GroupResource, str, str], JsonObject | None]
"""Finds an object by resource, namespace and name."""

PASSED_THROUGH = ("HF_HOME", "PIP_CACHE_DIR")
"""Caches of the host that save every pod a download; everything else a pod has to ask for."""

_CONFIG_ERROR = "CreateContainerConfigError"
_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_LOOPBACK = "lo" if sys.platform.startswith("linux") else "lo0"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodInfo:
    """What is known about a pod on its node beside its object."""

    pod: JsonObject
    pod_ip: str
    capacity: Mapping[str, str]
    """Resources of the node: what a container without a limit may use."""


class UnknownFieldError(ValueError):
    """The path or resource does not exist in the downward API."""


def field_value(path: str, pod_info: PodInfo) -> str:
    """Resolve a `fieldRef`. A label or annotation that the pod lacks is empty, as in Kubernetes."""
    metadata, spec = pod_info.pod["metadata"], pod_info.pod["spec"]
    if subscripted := _SUBSCRIPTED.fullmatch(path):
        return str((metadata.get(subscripted[1]) or {}).get(subscripted[2], ""))
    simple = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.podIP": pod_info.pod_ip,
        "status.podIPs": pod_info.pod_ip,
        "status.hostIP": HOST_IP,
        "status.hostIPs": HOST_IP,
    }
    if path in simple:
        return str(simple[path])
    if path in {"metadata.labels", "metadata.annotations"}:
        entries = metadata.get(path.removeprefix("metadata.")) or {}
        # JSON quoting equals that of Kubernetes for everything that labels and ordinary annotations hold.
        return "\n".join(f"{key}={json.dumps(entries[key], ensure_ascii=False)}" for key in sorted(entries))
    raise UnknownFieldError(f"unsupported fieldPath: {path}")


def resource_value(selector: JsonObject, container: JsonObject, pod_info: PodInfo) -> str:
    """Resolve a `resourceFieldRef` against a container: the amount in units of the divisor, rounded up."""
    kind, _, resource = str(selector.get("resource", "")).partition(".")
    if kind not in {"limits", "requests"} or not resource:
        raise UnknownFieldError(f"unsupported container resource: {selector.get('resource')}")
    resources = container.get("resources") or {}
    amount = (resources.get(kind) or {}).get(resource)
    if amount is None and kind == "limits":
        amount = pod_info.capacity.get(resource)
    try:
        divisor = Quantity.parse(selector.get("divisor") or "1")
        value = Quantity.parse(amount if amount is not None else "0")
    except QuantityError as error:
        raise UnknownFieldError(f"{selector.get('resource')}: {error}") from error
    # Kubernetes writes a divisor that was left out as "0" and means 1.
    return str(-(-value.nano // (divisor.nano or 10**9)))


def container_named(name: str | None, pod: JsonObject) -> JsonObject:
    """Find the container that a resource reference names."""
    spec = pod["spec"]
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        if container["name"] == name:
            found: JsonObject = container
            return found
    raise UnknownFieldError(f"container {name} not found")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the variable's value and `$$` by `$`; what is neither stays as it is."""

    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else variables.get(name, match[0])

    return _REFERENCE.sub(replaced, text) if "$" in text else text


def base_environment(
    *, hostname: str, home: Path, tmp: Path, search_path: Iterable[Path], host: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Give what every process needs to find programs (in `search_path` before all others) and a place to write."""
    search = [
        *(str(directory.absolute()) for directory in search_path),
        str(Path(sys.executable).parent),
        *host.get("PATH", os.defpath).split(os.pathsep),
    ]
    base = {
        "PATH": os.pathsep.join(dict.fromkeys(search)),
        "HOME": str(home),
        "TMPDIR": str(tmp),
        "LANG": "C.UTF-8",
        "HOSTNAME": hostname,
        "PYTHONUNBUFFERED": "1",
        # All pods share one host: its loopback is the one interface by which they certainly reach each other.
        "GLOO_SOCKET_IFNAME": _LOOPBACK,
        "NCCL_SOCKET_IFNAME": _LOOPBACK,
        # NCCL tells machines apart by their host names, which pods have of their own: it would go by sockets from one
        # to the other, in place of shared memory or from GPU to GPU.
        "NCCL_HOSTID": "trainmaster",
        # Open MPI tells its peers addresses of the host. There listens what asks for any port; what asks for a certain
        # one gets the address of its pod, where pods have their own, and IPv6 does not exist.
        "OMPI_MCA_btl_tcp_port_min_v4": "0",
        "OMPI_MCA_btl_tcp_disable_family": "6",
        "PRTE_MCA_oob_tcp_disable_ipv6_family": "1",
    }
    if cache := _pip_cache(host):
        base["PIP_CACHE_DIR"] = cache
    return base | {name: host[name] for name in PASSED_THROUGH if name in host}


def _pip_cache(host: Mapping[str, str]) -> str:
    """Give the cache that pip has on this host by itself: pods have another HOME, and would download all again."""
    if not (home := host.get("HOME")):
        return ""
    if sys.platform == "darwin":
        return f"{home}/Library/Caches/pip"
    return f"{host.get('XDG_CACHE_HOME') or f'{home}/.cache'}/pip"


def pod_environment(
    container: JsonObject, pod_info: PodInfo, *, services: Mapping[str, str], lookup: Lookup
) -> dict[str, str]:
    """Give the variables that the pod defines for this container, with those of the services below them."""
    namespace = pod_info.pod["metadata"]["namespace"]
    variables = dict(services)
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix") or ""
        for key, value in _whole_source(source, namespace, lookup).items():
            variables[prefix + key] = value
    for entry in container.get("env") or ():
        if "valueFrom" not in entry or entry["valueFrom"] is None:
            variables[entry["name"]] = expand(str(entry.get("value") or ""), variables)
            continue
        resolved = _value_from(entry["valueFrom"], container, pod_info, lookup)
        if resolved is not None:
            variables[entry["name"]] = resolved
    return variables


def thread_limit(container: JsonObject) -> dict[str, str]:
    """Give OMP_NUM_THREADS for a container that requests CPU: a process sees all of the host's, whatever its share."""
    resources = container.get("resources") or {}
    amount = (resources.get("requests") or {}).get("cpu") or (resources.get("limits") or {}).get("cpu")
    try:
        threads = Quantity.parse(amount).ceil() if amount else 0
    except QuantityError:
        return {}
    return {"OMP_NUM_THREADS": str(threads)} if threads > 0 else {}


def decoded(secret: JsonObject) -> dict[str, bytes]:
    """Give the contents of a Secret."""
    return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}


def _whole_source(source: JsonObject, namespace: str, lookup: Lookup) -> dict[str, str]:
    for field, resource in (("configMapRef", CONFIGMAPS), ("secretRef", SECRETS)):
        if (reference := source.get(field)) is not None:
            found = _find(resource, namespace, reference, lookup)
            return {key: value for key, value in _texts(resource, found).items() if key and "=" not in key}
    return {}


def _value_from(source: JsonObject, container: JsonObject, pod_info: PodInfo, lookup: Lookup) -> str | None:
    """Resolve one `valueFrom`; None leaves the variable undefined, as optional references do."""
    namespace = pod_info.pod["metadata"]["namespace"]
    try:
        if reference := source.get("fieldRef"):
            return field_value(str(reference.get("fieldPath", "")), pod_info)
        if reference := source.get("resourceFieldRef"):
            named = reference.get("containerName")
            return resource_value(reference, container_named(named, pod_info.pod) if named else container, pod_info)
    except UnknownFieldError as error:
        raise CreateContainerError(_CONFIG_ERROR, str(error)) from error
    for field, resource in (("configMapKeyRef", CONFIGMAPS), ("secretKeyRef", SECRETS)):
        if reference := source.get(field):
            values = _texts(resource, _find(resource, namespace, reference, lookup))
            key = reference.get("key", "")
            if key not in values and not reference.get("optional"):
                kind = "ConfigMap" if resource is CONFIGMAPS else "Secret"
                name = reference.get("name", "")
                raise CreateContainerError(_CONFIG_ERROR, f"couldn't find key {key} in {kind} {namespace}/{name}")
            return values.get(key)
    raise CreateContainerError(
        _CONFIG_ERROR, f"no supported source in valueFrom: {', '.join(sorted(source)) or 'it is empty'}"
    )


def _find(resource: GroupResource, namespace: str, reference: JsonObject, lookup: Lookup) -> JsonObject | None:
    name = reference.get("name") or ""
    found = lookup(resource, namespace, name)
    if found is None and not reference.get("optional"):
        raise CreateContainerError(_CONFIG_ERROR, f'{resource.resource.removesuffix("s")} "{name}" not found')
    return found


def _texts(resource: GroupResource, found: JsonObject | None) -> dict[str, str]:
    if found is None:
        return {}
    if resource is CONFIGMAPS:
        return dict(found.get("data") or {})
    # A process environment holds bytes; what is not UTF-8 travels through as surrogate escapes.
    return {key: value.decode(errors="surrogateescape") for key, value in decoded(found).items()}
