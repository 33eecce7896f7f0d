"""Rules of containers: those of all kinds, and what only some of them may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainmaster.devcluster.apiserver.errors import FieldError, too_many
from trainmaster.devcluster.apiserver.registry.core.validation.containers.env import validate_env, validate_env_from
from trainmaster.devcluster.apiserver.registry.core.validation.containers.mounts import (
    validate_devices,
    validate_mounts,
)
from trainmaster.devcluster.apiserver.registry.core.validation.containers.probes import (
    PROBES,
    validate_lifecycle,
    validate_probes,
)
from trainmaster.devcluster.apiserver.registry.core.validation.containers.resources import validate_container_resources
from trainmaster.devcluster.apiserver.registry.core.validation.containers.security_context import (
    validate_container_security,
)
from trainmaster.devcluster.apiserver.registry.core.validation.fields import forbidden, label, one_of, required
from trainmaster.devcluster.apiserver.registry.core.validation.network import validate_host_ports, validate_ports
from trainmaster.runtime.jsontree import JsonObject

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_RESIZED = ("cpu", "memory")
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_RESTART_ACTIONS = ("Restart", "RestartAllContainers")
_MOST_RULES = 20
_MOST_EXIT_CODES = 255
_NOT_IN_EPHEMERAL = (
    *("ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", *PROBES, "lifecycle"),
)


@dataclass(frozen=True, slots=True)
class PodContext:
    """What the rules of a container need to know of its pod."""

    volumes: Mapping[str, JsonObject]
    """The sound ones, by name."""

    claims: set[str]
    restart_policy: str
    grace_seconds: int
    host_users: bool
    is_pod: bool
    """Whether this is a pod, not a template."""


def validate_containers(path: str, spec: JsonObject, pod: PodContext) -> Iterator[FieldError]:
    """Check all containers of a pod."""
    containers = spec.get("containers") or []
    if not containers:
        yield required(f"{path}.containers")
    names: set[str] = set()
    for index, container in enumerate(containers):
        here = f"{path}.containers[{index}]"
        yield from _common(here, container, pod)
        yield from _unique(here, container, names)
        yield from _hooks_and_probes(here, container, pod)
        yield from _restarts(here, container)
    yield from validate_host_ports((f"{path}.containers[{at}]", each) for at, each in enumerate(containers))
    for index, container in enumerate(spec.get("initContainers") or ()):
        here = f"{path}.initContainers[{index}]"
        yield from _common(here, container, pod)
        yield from _unique(here, container, names)
        yield from _init_container(here, container, pod)
    if spec.get("ephemeralContainers"):
        yield from _ephemeral_containers(path, spec["ephemeralContainers"], names, pod)


def _common(path: str, container: JsonObject, pod: PodContext) -> Iterator[FieldError]:
    """Check what containers of all kinds have."""
    if name := container.get("name"):
        yield from label(f"{path}.name", name)
    else:
        yield required(f"{path}.name")
    image = container.get("image") or ""
    if not image:
        yield required(f"{path}.image")
    elif pod.is_pod and image.strip() != image:
        yield FieldError(f"{path}.image", "Invalid", image, "must not have leading or trailing whitespace")
    for field, supported in (("terminationMessagePolicy", _MESSAGE_POLICIES), ("imagePullPolicy", _PULL_POLICIES)):
        if value := container.get(field):
            yield from one_of(f"{path}.{field}", value, supported)
        else:
            yield required(f"{path}.{field}")
    for field, validate in (("ports", validate_ports), ("env", validate_env), ("envFrom", validate_env_from)):
        if items := container.get(field):
            yield from validate(f"{path}.{field}", items)
    yield from validate_mounts(path, container, pod.volumes)
    yield from validate_devices(path, container, pod.volumes)
    yield from validate_container_resources(f"{path}.resources", container.get("resources") or {}, pod.claims)
    if policies := container.get("resizePolicy"):
        yield from _resize_policy(f"{path}.resizePolicy", policies, pod.restart_policy)
    if context := container.get("securityContext"):
        yield from validate_container_security(f"{path}.securityContext", context, host_users=pod.host_users)


def _unique(path: str, container: JsonObject, names: set[str]) -> Iterator[FieldError]:
    name = container.get("name")
    if name in names:
        yield FieldError(f"{path}.name", "Duplicate", name)
    elif name:
        names.add(name)


def _hooks_and_probes(path: str, container: JsonObject, pod: PodContext) -> Iterator[FieldError]:
    if (lifecycle := container.get("lifecycle")) is not None:
        yield from validate_lifecycle(f"{path}.lifecycle", lifecycle, pod.grace_seconds)
    yield from validate_probes(path, container)


def _init_container(path: str, container: JsonObject, pod: PodContext) -> Iterator[FieldError]:
    """Check what containers that run before the others may have; those that go on running may have all."""
    yield from _restarts(path, container)
    yield from validate_host_ports([(path, container)])
    if container.get("restartPolicy") == "Always":
        yield from _hooks_and_probes(path, container, pod)
        return
    for field in ("lifecycle", *PROBES):
        if container.get(field) is not None:
            yield forbidden(f"{path}.{field}", "may not be set for init containers without restartPolicy=Always")


def _restarts(path: str, container: JsonObject) -> Iterator[FieldError]:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    here = f"{path}.restartPolicyRules"
    if policy is not None:
        yield from one_of(f"{path}.restartPolicy", policy, _RESTART_POLICIES)
    elif rules:
        yield required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")
    if len(rules) > _MOST_RULES:
        yield too_many(here, len(rules), _MOST_RULES)
    for index, rule in enumerate(rules):
        place = f"{here}[{index}]"
        yield from one_of(f"{place}.action", rule.get("action") or "", _RESTART_ACTIONS)
        codes = rule.get("exitCodes")
        if codes is None:
            yield required(f"{place}.exitCodes", "must be specified")
            continue
        yield from one_of(f"{place}.exitCodes.operator", codes.get("operator") or "", ("In", "NotIn"))
        if (count := len(codes.get("values") or ())) > _MOST_EXIT_CODES:
            yield too_many(f"{place}.exitCodes.values", count, _MOST_EXIT_CODES)


def _resize_policy(path: str, policies: list[JsonObject], restart_policy: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource, restart = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if resource in seen:
            yield FieldError(f"{path}[{index}]", "Duplicate", resource)
        seen.add(resource)
        for value, supported in ((resource, _RESIZED), (restart, _RESIZE_POLICIES)):
            if value:
                yield from one_of(path, value, supported)
            else:
                yield required(path)
        if restart_policy == "Never" and restart != "NotRequired":
            text = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            yield FieldError(path, "Invalid", restart, text)


def _ephemeral_containers(
    path: str, containers: list[JsonObject], others: set[str], pod: PodContext
) -> Iterator[FieldError]:
    names = set(others)
    for index, container in enumerate(containers):
        here = f"{path}.ephemeralContainers[{index}]"
        yield from _common(here, container, pod)
        yield from _unique(here, container, names)
        target = container.get("targetContainerName")
        if target and target not in others:
            yield FieldError(f"{here}.targetContainerName", "NotFound", target)
        for field in _NOT_IN_EPHEMERAL:
            if container.get(field):
                yield forbidden(f"{here}.{field}", "cannot be set for an Ephemeral Container")
        for position, mount in enumerate(container.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    place = f"{here}.volumeMounts[{position}].{field}"
                    yield forbidden(place, "cannot be set for an Ephemeral Container")
