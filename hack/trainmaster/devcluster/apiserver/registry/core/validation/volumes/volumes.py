"""Rules of volumes: their names, and that each has one source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    between,
    descending_path,
    forbidden,
    invalid,
    label,
    needs,
    no_backsteps,
    one_of,
    required,
    subdomain,
)
from trainmaster.devcluster.apiserver.registry.core.validation.volumes import file_volumes
from trainmaster.devcluster.apiserver.registry.core.validation.volumes.claim_templates import validate_ephemeral
from trainmaster.devcluster.apiserver.registry.core.validation.volumes.network_volumes import NETWORK_SOURCES
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_subdomain
from trainmaster.runtime.quantity import Quantity

_DRIVER_LENGTH = 63
_ISCSI_LENGTH = 64
_HOST_PATHS = (*("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"),)


def validate_volumes(
    path: str, volumes: list[JsonObject], pod_name: str
) -> tuple[dict[str, JsonObject], list[FieldError]]:
    """Check volumes; returns the sound ones by name, which containers may mount, and what is wrong with the others.

    `pod_name` is empty for a template: claims of ephemeral volumes get their names from the pod.
    """
    sound: dict[str, JsonObject] = {}
    errors: list[FieldError] = []
    created = {f"{pod_name}-{each.get('name')}" for each in volumes if pod_name and each.get("ephemeral") is not None}
    for index, volume in enumerate(volumes):
        here = f"{path}[{index}]"
        problems = [*_validate_source(here, volume, pod_name), *_validate_name(f"{here}.name", volume, sound)]
        if not problems:
            sound[volume["name"]] = volume
        errors += problems
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim in created:
            text = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(FieldError(f"{here}.persistentVolumeClaim.claimName", "Invalid", claim, text))
    return sound, errors


def _validate_name(path: str, volume: JsonObject, others: Mapping[str, JsonObject]) -> Iterator[FieldError]:
    name = volume.get("name") or ""
    if name:
        yield from label(path, name)
    else:
        yield required(path)
    if name in others:
        yield FieldError(path, "Duplicate", name)


def _validate_source(path: str, volume: JsonObject, pod_name: str) -> Iterator[FieldError]:
    kinds = [kind for kind in _SOURCES if volume.get(kind) is not None]
    if not kinds:
        yield required(path, "must specify a volume type")
        return
    kind = kinds[0]
    yield from _SOURCES[kind](f"{path}.{_PATHS.get(kind, kind)}", volume[kind])
    for other in kinds[1:]:
        yield forbidden(f"{path}.{_REFUSED_PATHS.get(other, other)}", "may not specify more than 1 volume type")
    if kind == "image" and pod_name:  # what is made of a template may still get one
        yield from needs(volume["image"], f"{path}.image", "reference")
    name = volume.get("name") or ""
    iscsi = volume.get("iscsi") or {}
    address = f"{name}:{iscsi.get('targetPortal') or ''}"
    if iscsi.get("initiatorName") is not None and len(address) > _ISCSI_LENGTH:
        text = (
            f"Total length of <volume name>:<iscsi.targetPortal> must be under {_ISCSI_LENGTH} characters "
            "if iscsi.initiatorName is specified."
        )
        yield FieldError(f"{path}.name", "Invalid", name, text)
    if kind == "ephemeral" and pod_name and name:
        claim = f"{pod_name}-{name}"
        for problem in dns_subdomain(claim):
            yield FieldError(f"{path}.name", "Invalid", name, f'PVC name "{claim}": {problem}')


def _empty_dir(path: str, source: JsonObject) -> Iterator[FieldError]:
    size = source.get("sizeLimit")
    if size is not None and Quantity.parse(size).nano < 0:
        yield forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _host_path(path: str, source: JsonObject) -> Iterator[FieldError]:
    if not source.get("path"):
        yield required(f"{path}.path")
        return
    yield from no_backsteps(f"{path}.path", source["path"])
    yield from one_of(f"{path}.type", source.get("type") or "", _HOST_PATHS)


def _git_repo(path: str, source: JsonObject) -> Iterator[FieldError]:
    yield from needs(source, path, "repository")
    yield from descending_path(f"{path}.directory", source.get("directory") or "")


def _csi(path: str, source: JsonObject) -> Iterator[FieldError]:
    driver = source.get("driver") or ""
    if not driver:
        yield required(f"{path}.driver")
    else:
        if len(driver) > _DRIVER_LENGTH:
            yield FieldError(f"{path}.driver", "TooLong", detail=f"may not be more than {_DRIVER_LENGTH} bytes")
        yield from invalid(f"{path}.driver", driver, dns_subdomain(driver.lower()))
    if (secret := source.get("nodePublishSecretRef")) is not None:
        if not secret.get("name"):
            yield required(f"{path}.nodePublishSecretRef.name")
        else:
            yield from subdomain(f"{path}.name", secret["name"])


def _claim(path: str, source: JsonObject) -> Iterator[FieldError]:
    return needs(source, path, "claimName")


def _image(path: str, source: JsonObject) -> Iterator[FieldError]:
    yield from one_of(f"{path}.pullPolicy", source.get("pullPolicy") or "", ("Always", "IfNotPresent", "Never"))


def _nfs(path: str, source: JsonObject) -> Iterator[FieldError]:
    yield from needs(source, path, "server", "path")
    if not (source.get("path") or "").startswith("/"):
        yield FieldError(f"{path}.path", "Invalid", source.get("path") or "", "must be an absolute path")


def _fibre_channel(path: str, source: JsonObject) -> Iterator[FieldError]:
    targets, wwids, lun = source.get("targetWWNs") or [], source.get("wwids") or [], source.get("lun")
    if not targets and not wwids:
        yield required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if targets and wwids:
        text = "targetWWNs and wwids can not be specified simultaneously"
        yield FieldError(f"{path}.targetWWNs", "Invalid", targets, text)
    if targets and lun is None:
        yield required(f"{path}.lun", "lun is required if targetWWNs is specified")
    elif targets:
        yield from between(f"{path}.lun", lun or 0, 0, 255)


_SOURCES: Mapping[str, Callable[[str, JsonObject], Iterator[FieldError]]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _git_repo,
    "secret": file_volumes.validate_secret,
    "nfs": _nfs,
    "persistentVolumeClaim": _claim,
    "downwardAPI": file_volumes.validate_downward_api,
    "fc": _fibre_channel,
    "configMap": file_volumes.validate_config_map,
    "projected": file_volumes.validate_projected,
    "csi": _csi,
    "ephemeral": validate_ephemeral,
    "image": _image,
    **NETWORK_SOURCES,
}
"""The kinds of sources; the first that a volume has is the one that counts."""

# The real server names these fields otherwise.
_PATHS = {"gcePersistentDisk": "persistentDisk"}
_REFUSED_PATHS = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
