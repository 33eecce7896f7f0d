"""Rules of the containers of pods and pod templates, which are those that manifests break; the schema has the rest.

Every function gets a part of an object that was decoded and defaulted, and the path to it. A field that is absent and
one with the zero value are the same thing, as they are to the real server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.fields import (
    config_key_problems,
    descending_path,
    environment_name_problems,
    forbidden,
    invalid,
    label,
    not_negative,
    one_of,
    port,
    port_name_problems,
    port_number,
    required,
    subdomain,
)
from trainmaster.devcluster.apiserver.registry.labels import label_key_problems
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import qualified_name
from trainmaster.runtime.quantity import Quantity

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
"""The fields of a container that hold probes."""
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_NOT_IN_EPHEMERAL = ("ports", "resources", "restartPolicy", *PROBES, "lifecycle")

_KNOWN_FIELDS = ("metadata.name", "metadata.namespace", "metadata.uid")
ENVIRONMENT_FIELDS = (
    *_KNOWN_FIELDS,
    *("spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
"""What a variable may show of the pod."""
_SUBSCRIPTED = ("metadata.annotations['", "metadata.labels['")
_KEY_REFS = ("configMapKeyRef", "secretKeyRef")
_SOURCES = ("fieldRef", "resourceFieldRef", *_KEY_REFS, "fileKeyRef")

_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")

_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES = "hugepages-"


def validate_containers(path: str, spec: JsonObject, volumes: Collection[str]) -> Iterator[FieldError]:
    """Check all containers of a pod; `volumes` are the names of its sound ones."""
    containers = spec.get("containers") or []
    if not containers:
        yield required(f"{path}.containers")
    claims = {each["name"] for each in spec.get("resourceClaims") or () if each.get("name")}
    names: set[str] = set()
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            here = f"{path}.{field}[{index}]"
            yield from _container(here, container, volumes, claims)
            if (name := container.get("name")) in names:
                yield FieldError(f"{here}.name", "Duplicate", name)
            elif name:
                names.add(name)
            if field == "ephemeralContainers":
                for other in _NOT_IN_EPHEMERAL:
                    if container.get(other):
                        yield forbidden(f"{here}.{other}", "cannot be set for an Ephemeral Container")
            elif field == "containers" or container.get("restartPolicy") == "Always":
                yield from _probes_and_hooks(here, container)
            else:
                for other in ("lifecycle", *PROBES):
                    if container.get(other) is not None:
                        text = "may not be set for init containers without restartPolicy=Always"
                        yield forbidden(f"{here}.{other}", text)
    yield from _host_ports((f"{path}.containers[{at}]", each) for at, each in enumerate(containers))


def _container(
    path: str, container: JsonObject, volumes: Collection[str], claims: Collection[str]
) -> Iterator[FieldError]:
    """Check what containers of all kinds have."""
    if name := container.get("name"):
        yield from label(f"{path}.name", name)
    else:
        yield required(f"{path}.name")
    if not container.get("image"):
        yield required(f"{path}.image")
    yield from one_of(f"{path}.imagePullPolicy", container["imagePullPolicy"], _PULL_POLICIES)
    if (policy := container.get("restartPolicy")) is not None:
        yield from one_of(f"{path}.restartPolicy", policy, _RESTART_POLICIES)
    yield from _ports(f"{path}.ports", container.get("ports") or ())
    yield from _env(f"{path}.env", container.get("env") or ())
    yield from _env_from(f"{path}.envFrom", container.get("envFrom") or ())
    yield from _mounts(f"{path}.volumeMounts", container.get("volumeMounts") or (), volumes)
    yield from validate_resources(f"{path}.resources", container.get("resources") or {}, claims)


# Ports


def _ports(path: str, ports: Iterable[JsonObject]) -> Iterator[FieldError]:
    """Check the ports of a container; only names must differ."""
    names: set[str] = set()
    for index, each in enumerate(ports):
        here = f"{path}[{index}]"
        if name := each.get("name"):
            problems = port_name_problems(name)
            yield from invalid(f"{here}.name", name, problems)
            if not problems and name in names:
                yield FieldError(f"{here}.name", "Duplicate", name)
            names.add(name)
        if number := each.get("containerPort"):
            yield from port_number(f"{here}.containerPort", number)
        else:
            yield required(f"{here}.containerPort")
        if number := each.get("hostPort"):
            yield from port_number(f"{here}.hostPort", number)
        yield from one_of(f"{here}.protocol", each["protocol"], _PROTOCOLS)


def _host_ports(containers: Iterable[tuple[str, JsonObject]]) -> Iterator[FieldError]:
    """Check that no port of the host is wanted twice by containers that run together; they come with their paths."""
    taken: set[str] = set()
    for path, container in containers:
        for index, each in enumerate(container.get("ports") or ()):
            if each.get("hostPort"):
                text = f"{each['protocol']}/{each.get('hostIP', '')}/{each['hostPort']}"
                if text in taken:
                    yield FieldError(f"{path}.ports[{index}].hostPort", "Duplicate", text)
                taken.add(text)


# Environment


def _env(path: str, variables: Iterable[JsonObject]) -> Iterator[FieldError]:
    """Check the variables of a container; a name may be given twice."""
    for index, variable in enumerate(variables):
        here = f"{path}[{index}]"
        if name := variable.get("name"):
            yield from invalid(f"{here}.name", name, environment_name_problems(name))
        else:
            yield required(f"{here}.name")
        if (source := variable.get("valueFrom")) is not None:
            yield from _value_from(f"{here}.valueFrom", source, has_value=bool(variable.get("value")))


def _value_from(path: str, source: JsonObject, *, has_value: bool) -> Iterator[FieldError]:
    if (field := source.get("fieldRef")) is not None:
        yield from field_ref(f"{path}.fieldRef", field, ENVIRONMENT_FIELDS)
    for kind in _KEY_REFS:
        if (selector := source.get(kind)) is not None:
            yield from subdomain(f"{path}.{kind}.name", selector.get("name") or "")
            if key := selector.get("key"):
                yield from invalid(f"{path}.{kind}.key", key, config_key_problems(key))
            else:
                yield required(f"{path}.{kind}.key")
    count = sum(source.get(kind) is not None for kind in _SOURCES)
    if count == 0:
        names = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield FieldError(path, "Invalid", "", f"must specify one of: {names}")
    elif has_value:
        yield FieldError(path, "Invalid", "", "may not be specified when `value` is not empty")
    elif count > 1:
        yield FieldError(path, "Invalid", "", "may not have more than one field specified at a time")


def field_ref(path: str, selector: JsonObject, supported: Collection[str]) -> Iterator[FieldError]:
    """Check what shows a field of the pod."""
    field = selector.get("fieldPath") or ""
    if not field:
        yield required(f"{path}.fieldPath")
    elif not (field.startswith(_SUBSCRIPTED) and field.endswith("']")):
        yield from one_of(f"{path}.fieldPath", field, supported)


def _env_from(path: str, sources: Iterable[JsonObject]) -> Iterator[FieldError]:
    """Check what a container takes all variables of."""
    for index, source in enumerate(sources):
        kinds = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        for kind in kinds:
            if name := source[kind].get("name"):
                yield from subdomain(f"{path}[{index}].{kind}.name", name)
            else:
                yield required(f"{path}[{index}].{kind}.name")
        if not kinds:
            yield FieldError(path, "Invalid", "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            yield FieldError(path, "Invalid", "", "may not have more than one field specified at a time")


# Mounts


def _mounts(path: str, mounts: Iterable[JsonObject], volumes: Collection[str]) -> Iterator[FieldError]:
    """Check the mounts of a container; `volumes` are the sound ones of its pod."""
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        here, name, target = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{here}.name")
        if name not in volumes:
            yield FieldError(f"{here}.name", "NotFound", name)
        if not target:
            yield required(f"{here}.mountPath")
        if target in seen:
            yield FieldError(f"{here}.mountPath", "Invalid", target, "must be unique")
        seen.add(target)
        part, expression = mount.get("subPath"), mount.get("subPathExpr")
        if part and expression:
            text = "subPathExpr and subPath are mutually exclusive"
            yield FieldError(f"{here}.subPathExpr", "Invalid", expression, text)
        for field in ("subPath", "subPathExpr"):  # the real server leaves the index out of these paths
            yield from descending_path(f"{path}.{field}", mount.get(field) or "")


# Probes and hooks


def _probes_and_hooks(path: str, container: JsonObject) -> Iterator[FieldError]:
    for hook in ("postStart", "preStop"):
        if (given := (container.get("lifecycle") or {}).get(hook)) is not None:
            yield from _handlers(f"{path}.lifecycle.{hook}", given, _HOOK_HANDLERS)
    for name in PROBES:
        if (probe := container.get(name)) is None:
            continue
        here = f"{path}.{name}"
        yield from _handlers(here, probe, _PROBE_HANDLERS)
        for field in _NUMBERS:
            yield from not_negative(f"{here}.{field}", probe.get(field) or 0)
        if name != "readinessProbe" and probe.get("successThreshold") != 1:
            yield FieldError(f"{here}.successThreshold", "Invalid", probe.get("successThreshold"), "must be 1")


def _handlers(path: str, given: JsonObject, known: tuple[str, ...]) -> Iterator[FieldError]:
    found = [kind for kind in known if given.get(kind) is not None]
    if not found:
        yield required(path, "must specify a handler type")
        return
    action = given[found[0]]
    if found[0] == "exec" and not action.get("command"):
        yield required(f"{path}.exec.command")
    elif found[0] in ("httpGet", "tcpSocket"):
        yield from port(f"{path}.{found[0]}.port", action.get("port", 0))
    for other in found[1:]:
        yield forbidden(f"{path}.{other}", "may not specify more than 1 handler type")


# Resources


def is_huge_page(name: str) -> bool:
    """Return whether a resource is memory in pages of one size."""
    return name.startswith(_HUGE_PAGES)


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _is_extended(name: str) -> bool:
    """Return whether a resource is one that a device plugin or an administrator gives, such as `nvidia.com/gpu`."""
    return not _is_native(name) and not name.startswith("requests.") and not qualified_name(f"requests.{name}")


def resource_name(path: str, name: str) -> Iterator[FieldError]:
    """Check the name of a resource of a container."""
    if problems := label_key_problems(name):
        yield from invalid(path, name, problems)
    elif "/" not in name and name not in _OF_CONTAINERS and not is_huge_page(name):
        yield FieldError(path, "Invalid", name, "must be a standard resource type or fully qualified")
        yield FieldError(path, "Invalid", name, "must be a standard resource for containers")
    elif not _is_native(name) and not _is_extended(name):
        yield FieldError(path, "Invalid", name, "doesn't follow extended resource name standard")


def validate_resources(
    path: str,
    resources: JsonObject,
    claims: Collection[str] = (),
    *,
    check_name: Callable[[str, str], Iterator[FieldError]] = resource_name,
) -> Iterator[FieldError]:
    """Check what a container asks for; `claims` are the names of the pod's resource claims."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for side, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            here = f"{path}.{side}[{name}]"
            yield from check_name(here, name)
            yield from amount(here, name, value)
    for name, value in requests.items():
        yield from _request_and_limit(f"{path}.requests", name, value, limits)
    for index, claim in enumerate(resources.get("claims") or ()):
        if (name := claim.get("name") or "") not in claims:
            which = f": {', '.join(sorted(claims))}" if claims else " which is empty"
            text = f"must be one of the names in pod.spec.resourceClaims{which}"
            yield FieldError(f"{path}.claims[{index}]", "NotFound", name, text)


def amount(path: str, name: str, value: str) -> Iterator[FieldError]:
    """Check the amount of a resource."""
    quantity = Quantity.parse(value)
    if quantity.nano < 0:
        yield FieldError(path, "Invalid", value, "must be greater than or equal to 0")
    if _is_extended(name) and quantity.nano % 10**9:
        yield FieldError(path, "Invalid", value, "must be an integer")


def _request_and_limit(path: str, name: str, request: str, limits: Mapping[str, str]) -> Iterator[FieldError]:
    overcommits = _is_native(name) and not is_huge_page(name)
    if name not in limits:
        if not overcommits:
            place = path.removesuffix(".requests")
            yield required(f"{place}.limits", "Limit must be set for non overcommitable resources")
        return
    requested, most = Quantity.parse(request), Quantity.parse(limits[name])
    if requested != most and not overcommits:
        yield FieldError(path, "Invalid", request, f"must be equal to {name} limit of {limits[name]}")
    elif requested > most:
        yield FieldError(path, "Invalid", request, f"must be less than or equal to {name} limit of {limits[name]}")


def requested_by_containers(spec: JsonObject) -> dict[str, Quantity]:
    """Return what the containers of a pod ask for together: those that run at once, or a greater one before them."""
    totals: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        _add(totals, container)
    sidecars: dict[str, Quantity] = {}
    most: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            _add(totals, container)
            _add(sidecars, container)
            now = sidecars
        else:
            now = dict(sidecars)
            _add(now, container)
        for name, value in now.items():
            most[name] = max(most.get(name, value), value)
    for name, value in most.items():
        totals[name] = max(totals.get(name, value), value)
    return totals


def _add(totals: dict[str, Quantity], container: JsonObject) -> None:
    for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
        quantity = Quantity.parse(value)
        totals[name] = totals[name] + quantity if name in totals else quantity
