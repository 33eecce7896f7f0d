"""Rules of pods for one operating system: what Linux alone has, and what Windows alone has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import forbidden, one_of, required, subdomain
from trainmaster.runtime.jsontree import JsonObject

_SYSTEMS = ("linux", "windows")
_OF_LINUX_PODS = (
    *("appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser"),
    *("runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy"),
)
_OF_LINUX_SPECS = ("hostUsers", "shareProcessNamespace")
_SHARED_WITH_LINUX_HOSTS = ("hostPID", "hostIPC")
_OF_LINUX_CONTAINERS = (
    *("appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged"),
    *("allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup"),
)
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")

_LONGEST_SPEC = 64 * 1024
_LONGEST_DOMAIN = 255
_LONGEST_USER = 104
_NETBIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS_NAME = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")


def validate_os(path: str, spec: JsonObject) -> Iterator[FieldError]:
    """Check that a pod for one system has nothing of the other."""
    if (system := spec.get("os")) is None:
        return
    name = system.get("name") or ""
    if not name:
        yield required(f"{path}.os.name")
    elif name not in _SYSTEMS:
        yield from one_of(f"{path}.os", name, _SYSTEMS)
    elif name == "linux":
        for here, context in _contexts(path, spec):
            if context.get("windowsOptions") is not None:
                yield forbidden(f"{here}.windowsOptions", "windows options cannot be set for a linux pod")
    else:
        yield from _for_windows(path, spec)


def _for_windows(path: str, spec: JsonObject) -> Iterator[FieldError]:
    found = [f"{path}.{field}" for field in _OF_LINUX_SPECS if spec.get(field) is not None]
    found += [f"{path}.{field}" for field in _SHARED_WITH_LINUX_HOSTS if spec.get(field)]
    for number, (here, context) in enumerate(_contexts(path, spec)):
        fields = _OF_LINUX_CONTAINERS if number else _OF_LINUX_PODS
        found += [f"{here}.{field}" for field in fields if context.get(field) not in (None, [])]
    for place in found:
        yield forbidden(place, "cannot be set for a windows pod")


def _contexts(path: str, spec: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Give the security contexts, that of the pod first, with their paths."""
    yield f"{path}.securityContext", spec.get("securityContext") or {}
    for field in _CONTAINERS:
        for index, container in enumerate(spec.get(field) or ()):
            yield f"{path}.{field}[{index}].securityContext", container.get("securityContext") or {}


def validate_windows_options(path: str, options: JsonObject | None) -> Iterator[FieldError]:
    """Check the part of a security context that is for Windows."""
    if not options:
        return
    if (name := options.get("gmsaCredentialSpecName")) is not None:
        yield from subdomain(f"{path}.gmsaCredentialSpecName", name)
    if (content := options.get("gmsaCredentialSpec")) is not None:
        if not content:
            text = "gmsaCredentialSpec cannot be an empty string"
            yield FieldError(f"{path}.gmsaCredentialSpec", "Invalid", content, text)
        elif len(content.encode()) > _LONGEST_SPEC:
            text = "gmsaCredentialSpec size must be under 64 KiB"
            yield FieldError(f"{path}.gmsaCredentialSpec", "Invalid", content, text)
    if (user := options.get("runAsUserName")) is not None:
        for problem in _user_problems(user):
            yield FieldError(f"{path}.runAsUserName", "Invalid", user, f"runAsUserName{problem}")


def _user_problems(text: str) -> Iterator[str]:
    *domain, user = text.split("\\")
    if not text:
        yield " cannot be an empty string"
    elif any(character < " " or character == "\x7f" for character in text):
        yield " cannot contain control characters"
    elif len(domain) > 1:
        yield " cannot contain more than one backslash"
    else:
        if domain and len(domain[0]) > _LONGEST_DOMAIN:
            yield f"'s Domain length must be under {_LONGEST_DOMAIN + 1} characters"
        if domain and not (_NETBIOS.fullmatch(domain[0]) or _DNS_NAME.fullmatch(domain[0])):
            yield "'s Domain doesn't match the NetBios nor the DNS format"
        if not user:
            yield "'s User cannot be empty"
        elif len(user) > _LONGEST_USER:
            yield f"'s User length must not be longer than {_LONGEST_USER} characters"
        if user and not user.strip(". "):
            yield "'s User cannot contain only periods or spaces"
        if re.search(r'["/\\:;|=,+*?<>@\[\]]', user):
            yield "'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"


def validate_host_process(path: str, spec: JsonObject) -> Iterator[FieldError]:
    """Check that the containers of a pod agree on running as processes of a Windows host."""
    (_, of_pod), *containers = _contexts(path, spec)
    inherited = (of_pod.get("windowsOptions") or {}).get("hostProcess")
    count = 0
    for here, context in containers:
        own = (context.get("windowsOptions") or {}).get("hostProcess")
        if inherited is not None and own is not None and own != inherited:
            shown = str(inherited).lower()
            text = f"pod hostProcess value must be identical if both are specified, was {shown}"
            yield FieldError(f"{here}.windowsOptions.hostProcess", "Invalid", own, text)
        count += bool(inherited if own is None else own)
    if not count:
        return
    if count != len(containers):
        text = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        yield FieldError(path, "Invalid", "", text)
    if not spec.get("hostNetwork"):
        text = "hostNetwork must be true if pod contains any hostProcess containers"
        yield FieldError(f"{path}.hostNetwork", "Invalid", bool(spec.get("hostNetwork")), text)
