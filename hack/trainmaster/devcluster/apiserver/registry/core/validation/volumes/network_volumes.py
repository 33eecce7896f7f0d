"""Rules of volumes on storage systems that Kubernetes knew before there were drivers; nothing here mounts them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import between, label, needs, one_of, required
from trainmaster.runtime.jsontree import JsonObject

_Rule = Callable[[str, JsonObject], Iterator[FieldError]]

_ISCSI_NAMES = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([a-z0-9]+([-.][a-z0-9]+)*)(:[^,;*&$|\s]+)?", re.IGNORECASE | re.ASCII),
    "eui": re.compile(r"eui\.[0-9A-Fa-f]{16}"),
    "naa": re.compile(r"naa\.([0-9A-Fa-f]{32}|[0-9A-Fa-f]{16})"),
}
_QUOBYTE_TEXT = "must be a host:port pair or multiple pairs separated by commas"
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*")
_LONGEST_TENANT = 64


def _needing(*fields: str) -> _Rule:
    return lambda path, source: needs(source, path, *fields)


def _disk(field: str) -> _Rule:
    def validate(path: str, source: JsonObject) -> Iterator[FieldError]:
        yield from needs(source, path, field)
        yield from between(f"{path}.partition", source.get("partition") or 0, 0, 255)

    return validate


def _iscsi(path: str, source: JsonObject) -> Iterator[FieldError]:
    yield from needs(source, path, "targetPortal", "iqn")
    if name := source.get("iqn"):
        yield from _iscsi_name(f"{path}.iqn", name)
    yield from between(f"{path}.lun", source.get("lun") or 0, 0, 255)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        yield required(f"{path}.secretRef")
    if (name := source.get("initiatorName")) is not None:
        yield from _iscsi_name(f"{path}.initiatorname", name)


def _iscsi_name(path: str, name: str) -> Iterator[FieldError]:
    pattern = _ISCSI_NAMES.get(name[:3])
    if pattern is None:
        yield FieldError(path, "Invalid", name, "must be valid format starting with iqn, eui, or naa")
    elif not pattern.fullmatch(name):
        yield FieldError(path, "Invalid", name, "must be valid format")


def _quobyte(path: str, source: JsonObject) -> Iterator[FieldError]:
    registry = source.get("registry") or ""
    if not registry:
        yield required(f"{path}.registry", _QUOBYTE_TEXT)
    elif len(source.get("tenant") or "") > _LONGEST_TENANT:
        yield required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in registry.split(","):
            if not _HOST_AND_PORT.fullmatch(pair):
                yield FieldError(f"{path}.registry", "Invalid", registry, _QUOBYTE_TEXT)
    yield from needs(source, path, "volume")


def _flocker(path: str, source: JsonObject) -> Iterator[FieldError]:
    name, uuid = source.get("datasetName") or "", source.get("datasetUUID") or ""
    if not name and not uuid:
        yield required(path, "one of datasetName and datasetUUID is required")
    if name and uuid:
        yield FieldError(path, "Invalid", "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        yield FieldError(f"{path}.datasetName", "Invalid", name, "must not contain '/'")


def _secret_name(path: str, source: JsonObject) -> Iterator[FieldError]:
    secret = source.get("secretRef")
    if secret is not None and not secret.get("name"):
        yield required(f"{path}.secretRef.name")


def _cinder(path: str, source: JsonObject) -> Iterator[FieldError]:
    yield from needs(source, path, "volumeID")
    yield from _secret_name(path, source)


def _flex(path: str, source: JsonObject) -> Iterator[FieldError]:
    yield from needs(source, path, "driver")
    for key in source.get("options") or ():
        namespace = f".{key.partition('/')[0].lower()}"
        if namespace.endswith((".kubernetes.io", ".k8s.io")):
            text = "kubernetes.io and k8s.io namespaces are reserved"
            yield FieldError(f"{path}.options[{key}]", "Invalid", key, text)


def _azure_disk(path: str, source: JsonObject) -> Iterator[FieldError]:
    yield from needs(source, path, "diskName", "diskURI")
    uri, kind = source.get("diskURI") or "", source.get("kind")
    if (mode := source.get("cachingMode")) is not None:
        yield from one_of(f"{path}.cachingMode", mode, ("None", "ReadOnly", "ReadWrite"))
    if kind is None:
        return
    yield from one_of(f"{path}.kind", kind, ("Dedicated", "Managed", "Shared"))
    if kind == "Managed":
        prefix, example = (
            "/subscriptions/",
            ("/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"),
        )
    else:
        prefix, example = "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
    if not uri.startswith(prefix):
        yield from one_of(f"{path}.diskURI", uri, (example,))


def _storage_os(path: str, source: JsonObject) -> Iterator[FieldError]:
    if name := source.get("volumeName"):
        yield from label(f"{path}.volumeName", name)
    else:
        yield required(f"{path}.volumeName")
    if namespace := source.get("volumeNamespace"):
        yield from label(f"{path}.volumeNamespace", namespace)
    yield from _secret_name(path, source)


NETWORK_SOURCES: Mapping[str, _Rule] = {
    "gcePersistentDisk": _disk("pdName"),
    "awsElasticBlockStore": _disk("volumeID"),
    "iscsi": _iscsi,
    "glusterfs": _needing("endpoints", "path"),
    "flocker": _flocker,
    "rbd": _needing("monitors", "image"),
    "cinder": _cinder,
    "cephfs": _needing("monitors"),
    "quobyte": _quobyte,
    "flexVolume": _flex,
    "azureFile": _needing("secretName", "shareName"),
    "vsphereVolume": _needing("volumePath"),
    "photonPersistentDisk": _needing("pdID"),
    "portworxVolume": _needing("volumeID"),
    "azureDisk": _azure_disk,
    "storageos": _storage_os,
    "scaleIO": _needing("gateway", "system", "volumeName"),
}
