"""Rules of annotations that mean something in pods, and of what the real server still reads besides the fields."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import descending_path, forbidden
from trainmaster.runtime.jsontree import JsonObject

MIRROR_POD = "kubernetes.io/config.mirror"
"""Marks what a kubelet shows of a pod that it has from a file."""
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST = "localhost/"
_SECCOMP = {"Unconfined": ("unconfined",), "RuntimeDefault": ("runtime/default", "docker/default")}
_APP_ARMOR_VALUES = {"Unconfined": ("unconfined",), "RuntimeDefault": ("runtime/default",)}
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


def validate_pod_annotations(path: str, annotations: JsonObject, spec: JsonObject) -> Iterator[FieldError]:
    """Check the values of annotations of a pod or template."""
    names = {each.get("name") for field in _CONTAINERS for each in spec.get(field) or ()}
    if (mirror := annotations.get(MIRROR_POD)) is not None and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        yield FieldError(f"{path}[{MIRROR_POD}]", "Invalid", mirror, text)
    if (cost := annotations.get(_DELETION_COST)) is not None and not _is_int32(cost):
        yield FieldError(f"{path}[{_DELETION_COST}]", "Invalid", cost, "must be a 32bit integer")
    for key, value in annotations.items():
        if key == _SECCOMP_POD or key.startswith(_SECCOMP_CONTAINER):
            yield from _seccomp(f"{path}.{key}", value)
        elif key.startswith(_APP_ARMOR):
            name = key.removeprefix(_APP_ARMOR)
            if name not in names:
                yield FieldError(f"{path}[{key}]", "Invalid", name, "container not found")
            if value not in ("", "runtime/default", "unconfined") and not value.startswith(_LOCALHOST):
                yield FieldError(f"{path}[{key}]", "Invalid", value, f'invalid AppArmor profile name: "{value}"')


def _is_int32(text: str) -> bool:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or (len(digits) > 1 and digits[0] == "0"):
        return False
    return len(digits) <= 10 and -(2**31) <= int(text) < 2**31


def _seccomp(path: str, value: str) -> Iterator[FieldError]:
    if value.startswith(_LOCALHOST):
        yield from descending_path(path, value.removeprefix(_LOCALHOST))
    elif value not in ("runtime/default", "docker/default", "unconfined"):
        yield FieldError(path, "Invalid", value, "must be a valid seccomp profile")


def validate_profiles_match(
    path: str, annotations: JsonObject, spec: JsonObject, *, is_pod: bool
) -> Iterator[FieldError]:
    """Check that profiles in fields and in the annotations of old do not contradict each other."""
    if not annotations:
        return
    of_pod = spec.get("securityContext") or {}
    yield from _match(
        f"{path}.securityContext.seccompProfile", annotations.get(_SECCOMP_POD), of_pod.get("seccompProfile")
    )
    for field in _CONTAINERS:
        for index, container in enumerate(spec.get(field) or ()):
            context, name = container.get("securityContext") or {}, container.get("name") or ""
            here = f"{path}.{field}[{index}].securityContext"
            seccomp = annotations.get(f"{_SECCOMP_CONTAINER}{name}")
            yield from _match(f"{here}.seccompProfile", seccomp, context.get("seccompProfile"))
            profile = context.get("appArmorProfile") or of_pod.get("appArmorProfile")
            if is_pod and (spec.get("os") or {}).get("name") != "windows":
                app_armor = annotations.get(f"{_APP_ARMOR}{name}")
                yield from _match(f"{here}.appArmorProfile", app_armor, profile, app_armor=True)


def _match(
    path: str, annotation: str | None, profile: JsonObject | None, *, app_armor: bool = False
) -> Iterator[FieldError]:
    if annotation is None or profile is None:
        return
    what = "apparmor" if app_armor else "seccomp"
    kind = profile.get("type") or ""
    values = _APP_ARMOR_VALUES if app_armor else _SECCOMP
    local = annotation.startswith(_LOCALHOST)
    if (kind in values and annotation not in values[kind]) or (kind == "Localhost" and not local):
        yield forbidden(f"{path}.type", f"{what} type in annotation and field must match")
    elif kind == "Localhost" and annotation.removeprefix(_LOCALHOST) != profile.get("localhostProfile"):
        yield forbidden(f"{path}.localhostProfile", f"{what} profile in annotation and field must match")
