"""Rules of what a container does with the volumes of its pod: mounts, and devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    descending_path,
    forbidden,
    one_of,
    required,
)
from trainmaster.runtime.jsontree import JsonObject

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_RECURSIONS = ("Disabled", "Enabled", "IfPossible")


def validate_mounts(path: str, container: JsonObject, volumes: Mapping[str, JsonObject]) -> Iterator[FieldError]:
    """Check the mounts of a container; `volumes` are the sound ones of its pod."""
    if not container.get("volumeMounts"):
        return
    devices = container.get("volumeDevices") or ()
    device_names = {each.get("name") or "" for each in devices}
    device_paths = {each.get("devicePath") or "" for each in devices}
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here = f"{path}.volumeMounts[{index}]"
        name, target = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{here}.name")
        if name not in volumes:
            yield FieldError(f"{here}.name", "NotFound", name)
        if not target:
            yield required(f"{here}.mountPath")
        if target in seen:
            yield FieldError(f"{here}.mountPath", "Invalid", target, "must be unique")
        seen.add(target)
        if name in device_names:
            yield FieldError(f"{here}.name", "Invalid", name, "must not already exist in volumeDevices")
        if target in device_paths:
            yield FieldError(
                f"{here}.mountPath", "Invalid", target, "must not already exist as a path in volumeDevices"
            )
        if len(mount) > 2:
            yield from _options(path, here, mount, container)


def _options(path: str, here: str, mount: JsonObject, container: JsonObject) -> Iterator[FieldError]:
    """Check what few mounts have; the real server leaves the index out of these paths."""
    part, expression = mount.get("subPath"), mount.get("subPathExpr")
    if part:
        yield from descending_path(f"{path}.volumeMounts.subPath", part)
    if expression:
        if part:
            text = "subPathExpr and subPath are mutually exclusive"
            yield FieldError(f"{here}.subPathExpr", "Invalid", expression, text)
        yield from descending_path(f"{path}.volumeMounts.subPathExpr", expression)
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        place = f"{path}.volumeMounts.mountPropagation"
        yield from one_of(place, propagation, _PROPAGATIONS)
        if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
            yield forbidden(place, "Bidirectional mount propagation is available only to privileged containers")
    recursion = mount.get("recursiveReadOnly")
    if recursion is not None:
        place = f"{path}.volumeMounts.recursiveReadOnly"
        yield from one_of(place, recursion, _RECURSIONS)
        if recursion in ("Enabled", "IfPossible"):
            if not mount.get("readOnly"):
                yield forbidden(place, "may only be specified when readOnly is true")
            if propagation not in (None, "None"):
                yield forbidden(place, "may only be specified when mountPropagation is None or not specified")


def validate_devices(path: str, container: JsonObject, volumes: Mapping[str, JsonObject]) -> Iterator[FieldError]:
    """Check the block devices of a container; `volumes` are the sound ones of its pod."""
    if not container.get("volumeDevices"):
        return
    mounts = container.get("volumeMounts") or ()
    mount_names = {each.get("name") or "" for each in mounts}
    mount_paths = {each.get("mountPath") or "" for each in mounts}
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices") or ()):
        here = f"{path}.volumeDevices[{index}]"
        name, target = device.get("name") or "", device.get("devicePath") or ""
        if not name:
            yield required(f"{here}.name")
        if name in names:
            yield FieldError(f"{here}.name", "Invalid", name, "must be unique")
        yield from _is_block(f"{here}.name", name, volumes.get(name))
        if not target:
            yield required(f"{here}.devicePath")
        if target in paths:
            yield FieldError(f"{here}.devicePath", "Invalid", target, "must be unique")
        if ".." in target.split("/"):
            yield FieldError(f"{here}.devicePath", "Invalid", target, "can not contain backsteps ('..')")
        else:
            paths.add(target)
        if name in mount_names:
            yield FieldError(f"{here}.name", "Invalid", name, "must not already exist in volumeMounts")
        if target in mount_paths:
            yield FieldError(
                f"{here}.devicePath", "Invalid", target, "must not already exist as a path in volumeMounts"
            )
        if name:
            names.add(name)


def _is_block(path: str, name: str, volume: JsonObject | None) -> Iterator[FieldError]:
    if volume is None:
        yield FieldError(path, "NotFound", name)
    elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
        text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        yield FieldError(path, "Invalid", name, text)
