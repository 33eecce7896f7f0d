"""Rules of security contexts, of pods and of containers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.containers.windows import validate_windows_options
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    between,
    descending_path,
    forbidden,
    one_of,
    posix_id,
    required,
)
from trainmaster.runtime.jsontree import JsonObject

_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_LONGEST_PROFILE = 4095
_SYSCTL_LENGTH = 253
_SYSCTL_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"({_SYSCTL_SEGMENT}[\./])*{_SYSCTL_SEGMENT}"
_IS_SYSCTL = re.compile(_SYSCTL)
_NET_SYSCTLS = ("net.",)
_IPC_SYSCTLS = ("kernel.sem", "kernel.shm", "kernel.msg", "fs.mqueue.")


def validate_container_security(path: str, context: JsonObject, *, host_users: bool) -> Iterator[FieldError]:
    """Check the security context of a container."""
    yield from posix_id(context, path, "runAsUser")
    yield from posix_id(context, path, "runAsGroup")
    if (mount := context.get("procMount")) is not None:
        yield from one_of(f"{path}.procMount", mount, ("Default", "Unmasked"))
        if mount == "Unmasked" and host_users:
            text = "`hostUsers` must be false to use `Unmasked`"
            yield FieldError(f"{path}.procMount", "Invalid", mount, text)
    yield from _profiles(path, context)
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            yield FieldError(path, "Invalid", context, text)
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            text = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield FieldError(path, "Invalid", context, text)
    yield from validate_windows_options(f"{path}.windowsOptions", context.get("windowsOptions"))


def validate_pod_security(path: str, spec: JsonObject) -> Iterator[FieldError]:
    """Check the security context of a pod, which to the real server includes what is shared with the host."""
    context = spec.get("securityContext") or {}
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        yield from posix_id(context, path, field)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from between(f"{path}.supplementalGroups[{index}]", group, 0, 2**31 - 1)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield FieldError(f"{path}.shareProcessNamespace", "Invalid", True, text)
    if not context:
        return
    yield from _sysctls(f"{path}.sysctls", context.get("sysctls") or [], spec)
    for field, supported in (
        ("fsGroupChangePolicy", ("Always", "OnRootMismatch")),
        ("supplementalGroupsPolicy", ("Merge", "Strict")),
        ("seLinuxChangePolicy", ("MountOption", "Recursive")),
    ):
        if (value := context.get(field)) is not None:
            yield from one_of(f"{path}.{field}", value, supported)
    yield from _profiles(path, context)
    yield from validate_windows_options(f"{path}.windowsOptions", context.get("windowsOptions"))


def _sysctls(path: str, sysctls: list[JsonObject], spec: JsonObject) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        here, name = f"{path}[{index}].name", sysctl.get("name") or ""
        if not name:
            yield required(here)
        elif len(name) > _SYSCTL_LENGTH or not _IS_SYSCTL.fullmatch(name):
            text = f"must have at most {_SYSCTL_LENGTH} characters and match regex ^{_SYSCTL}$"
            yield FieldError(here, "Invalid", name, text)
        elif name in seen:
            yield FieldError(here, "Duplicate", name)
        dotted = name.replace("/", ".")
        if spec.get("hostNetwork") and dotted.startswith(_NET_SYSCTLS):
            yield FieldError(here, "Invalid", name, "may not be specified when 'hostNetwork' is true")
        elif spec.get("hostIPC") and dotted.startswith(_IPC_SYSCTLS):
            yield FieldError(here, "Invalid", name, "may not be specified when 'hostIPC' is true")
        seen.add(name)


def _profiles(path: str, context: JsonObject) -> Iterator[FieldError]:
    if (profile := context.get("seccompProfile")) is not None:
        yield from _seccomp(f"{path}.seccompProfile", profile)
    if (profile := context.get("appArmorProfile")) is not None:
        yield from _app_armor(f"{path}.appArmorProfile", profile)


def _seccomp(path: str, profile: JsonObject) -> Iterator[FieldError]:
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        yield required(f"{path}.type", "type is required when seccompProfile is set")
    else:
        yield from one_of(f"{path}.type", kind, _PROFILES)
    if kind != "Localhost":
        if local is not None:
            shown = {"Type": kind, "LocalhostProfile": local}
            text = "can only be set when seccomp type is Localhost"
            yield FieldError(f"{path}.localhostProfile", "Invalid", shown, text)
    elif local is None:
        yield required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost")
    else:
        yield from descending_path(f"{path}.localhostProfile", local)


def _app_armor(path: str, profile: JsonObject) -> Iterator[FieldError]:
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    here = f"{path}.localhostProfile"
    if not kind:
        yield required(f"{path}.type", "type is required when appArmorProfile is set")
    elif kind not in _PROFILES:
        yield from one_of(f"{path}.type", kind, _PROFILES)
    elif kind != "Localhost":
        if local is not None:
            yield FieldError(here, "Invalid", local, "can only be set when AppArmor type is Localhost")
    elif local is None or local == "":
        yield required(here, "must be set when AppArmor type is Localhost")
    else:
        if local.strip() != local:
            yield FieldError(here, "Invalid", local, "must not be padded with whitespace")
        if len(local.encode()) > _LONGEST_PROFILE:
            yield FieldError(here, "TooLong", detail=f"may not be more than {_LONGEST_PROFILE} bytes")


def validate_host_users(path: str, spec: JsonObject) -> Iterator[FieldError]:
    """Check that a pod with users of its own shares nothing else with the host."""
    if spec.get("hostUsers") is not False:
        return
    text = "when `hostUsers` is false"
    for field, name in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(field):
            yield forbidden(f"{path}.{name}", text)  # the real server writes the names like this
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            if container.get("volumeDevices"):
                yield forbidden(f"{path}.{field}[{index}].volumeDevices", text)
