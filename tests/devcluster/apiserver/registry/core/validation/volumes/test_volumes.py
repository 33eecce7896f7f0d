"""Volumes, and what containers mount of them."""

from __future__ import annotations

from typing import Any

import pytest
from support.podlifecycle import wrong, wrong_in_container, wrong_in_template

CLAIM: Any = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def _of(**source: Any) -> list[str]:
    return [each.removeprefix("volumes[0].") for each in wrong(volumes=[{"name": "v", **source}])]


def _template(**spec: Any) -> Any:
    return {"volumeClaimTemplate": {"spec": CLAIM | spec}}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({"emptyDir": {"sizeLimit": "-1"}}, ["emptyDir.sizeLimit Forbidden"]),
        ({"emptyDir": {"medium": "anything"}}, []),
        ({"hostPath": {"path": "/a", "type": "Folder"}}, ["hostPath.type NotSupported"]),
        ({"hostPath": {"path": "/a", "type": "DirectoryOrCreate"}}, []),
        ({"gitRepo": {"directory": "/a"}}, ["gitRepo.directory Invalid", "gitRepo.repository Required"]),
        ({"configMap": {"name": "A B"}}, []),
        ({"downwardAPI": {"items": [{"path": "a"}]}}, ["downwardAPI Required"]),
        ({"nfs": {"server": "s", "path": "a"}}, ["nfs.path Invalid"]),
        ({"nfs": {}}, ["nfs.path Invalid", "nfs.path Required", "nfs.server Required"]),
        ({"csi": {"driver": "Example.com"}}, []),
        ({"csi": {"driver": "a_b"}}, ["csi.driver Invalid"]),
        ({"csi": {"driver": "a" * 64}}, ["csi.driver TooLong"]),
        ({"csi": {"driver": "a", "nodePublishSecretRef": {}}}, ["csi.nodePublishSecretRef.name Required"]),
        ({"fc": {}}, ["fc.targetWWNs Required"]),
        ({"fc": {"targetWWNs": ["a"]}}, ["fc.lun Required"]),
        ({"fc": {"targetWWNs": ["a"], "wwids": ["b"], "lun": 256}}, ["fc.lun Invalid", "fc.targetWWNs Invalid"]),
        (
            {"ephemeral": _template(accessModes=["RWX"])},
            ["ephemeral.volumeClaimTemplate.spec.accessModes NotSupported"],
        ),
        (
            {"ephemeral": _template(accessModes=["ReadWriteOncePod", "ReadWriteOnce"])},
            ["ephemeral.volumeClaimTemplate.spec.accessModes Forbidden"],
        ),
        ({"ephemeral": _template(volumeMode="Raw")}, ["ephemeral.volumeClaimTemplate.spec.volumeMode NotSupported"]),
        (
            {"ephemeral": {"volumeClaimTemplate": {"metadata": {"name": "x"}, "spec": CLAIM}}},
            ["ephemeral.volumeClaimTemplate.metadata.name Forbidden"],
        ),
    ],
)
def test_the_source_of_a_volume(source: Any, found: list[str]) -> None:
    assert _of(**source) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (
            {"gcePersistentDisk": {"partition": 256}},
            ["persistentDisk.partition Invalid", "persistentDisk.pdName Required"],
        ),
        ({"awsElasticBlockStore": {}}, ["awsElasticBlockStore.volumeID Required"]),
        ({"iscsi": {"lun": -1}}, ["iscsi.iqn Required", "iscsi.lun Invalid", "iscsi.targetPortal Required"]),
        ({"iscsi": {"targetPortal": "a", "iqn": "iqn.2001-04.com.example:x"}}, []),
        ({"iscsi": {"targetPortal": "a", "iqn": "eui.1"}}, ["iscsi.iqn Invalid"]),
        (
            {"iscsi": {"targetPortal": "a", "iqn": "x", "chapAuthSession": True}},
            ["iscsi.iqn Invalid", "iscsi.secretRef Required"],
        ),
        (
            {"iscsi": {"targetPortal": "a" * 70, "iqn": "naa." + "0" * 16, "initiatorName": "naa." + "0" * 16}},
            ["name Invalid"],
        ),
        ({"glusterfs": {}}, ["glusterfs.endpoints Required", "glusterfs.path Required"]),
        ({"flocker": {}}, ["flocker Required"]),
        ({"flocker": {"datasetName": "a/b", "datasetUUID": "c"}}, ["flocker Invalid", "flocker.datasetName Invalid"]),
        ({"rbd": {}}, ["rbd.image Required", "rbd.monitors Required"]),
        ({"cinder": {"secretRef": {}}}, ["cinder.secretRef.name Required", "cinder.volumeID Required"]),
        ({"cephfs": {}}, ["cephfs.monitors Required"]),
        ({"quobyte": {"registry": "host"}}, ["quobyte.registry Invalid", "quobyte.volume Required"]),
        ({"quobyte": {"registry": "a:1,[::1]:2", "volume": "v", "tenant": "t" * 65}}, ["quobyte.tenant Required"]),
        (
            {"flexVolume": {"options": {"a.k8s.io/x": "1"}}},
            ["flexVolume.driver Required", "flexVolume.options[a.k8s.io/x] Invalid"],
        ),
        ({"azureFile": {}}, ["azureFile.secretName Required", "azureFile.shareName Required"]),
        ({"azureDisk": {"diskName": "a", "diskURI": "https://x"}}, []),
        ({"azureDisk": {"diskName": "a", "diskURI": "x", "kind": "Managed"}}, ["azureDisk.diskURI NotSupported"]),
        (
            {"azureDisk": {"kind": "Big", "cachingMode": "All"}},
            [
                "azureDisk.cachingMode NotSupported",
                "azureDisk.diskName Required",
                "azureDisk.diskURI NotSupported",
                "azureDisk.diskURI Required",
                "azureDisk.kind NotSupported",
            ],
        ),
        ({"vsphereVolume": {}}, ["vsphereVolume.volumePath Required"]),
        ({"photonPersistentDisk": {}}, ["photonPersistentDisk.pdID Required"]),
        ({"portworxVolume": {}}, ["portworxVolume.volumeID Required"]),
        (
            {"storageos": {"volumeNamespace": "A"}},
            ["storageos.volumeName Required", "storageos.volumeNamespace Invalid"],
        ),
        ({"scaleIO": {"gateway": "g"}}, ["scaleIO.system Required", "scaleIO.volumeName Required"]),
    ],
)
def test_sources_that_nothing_here_mounts_are_judged_as_well(source: Any, found: list[str]) -> None:
    assert _of(**source) == found


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ([{"secret": {}}], [".sources[0].secret.name Required"]),
        (
            [{"downwardAPI": {"items": [{"path": "/a", "fieldRef": {"fieldPath": "metadata.name"}}]}}],
            [".sources[0].downwardAPI.path Invalid"],
        ),
        (
            [{"serviceAccountToken": {"expirationSeconds": 2**32 + 1}}],
            [".path Required", ".sources[0].serviceAccountToken.expirationSeconds Invalid"],
        ),
        ([{"clusterTrustBundle": {"path": ".."}}, {"podCertificate": {}}], []),
    ],
)
def test_several_sources_in_one_volume(sources: Any, found: list[str]) -> None:
    assert _of(projected={"sources": sources}) == [f"projected{each}" for each in found]


def test_a_file_can_show_a_label() -> None:
    assert _of(downwardAPI={"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels['a']"}}]}) == []


def test_names_differ_and_only_sound_volumes_can_be_mounted() -> None:
    assert wrong(volumes=[{"name": "v"}, {"name": "v"}, {}]) == [
        "volumes[1].name Duplicate",
        "volumes[2].name Required",
    ]


def test_the_first_of_several_sources_counts() -> None:
    two = {"name": "v", "secret": {}, "downwardAPI": {"defaultMode": 4096}, "cephfs": {}}
    assert wrong(volumes=[two]) == [
        "volumes[0].cephFS Forbidden",
        "volumes[0].downwarAPI Forbidden",
        "volumes[0].secret.secretName Required",
    ]


def test_a_pod_does_not_use_a_claim_that_is_made_for_it() -> None:
    volumes = [{"name": "e", "ephemeral": _template()}, {"name": "v", "persistentVolumeClaim": {"claimName": "demo-e"}}]
    assert wrong(volumes=volumes) == ["volumes[1].persistentVolumeClaim.claimName Invalid"]
    assert wrong_in_template(volumes=volumes) == []


VOLUMES: Any = {
    "volumes": [
        {"name": "v", "emptyDir": {}},
        {"name": "p", "persistentVolumeClaim": {"claimName": "p"}},
        {"name": "i", "image": {"reference": "img:1"}},
    ]
}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, ["[0].mountPath Required"]),
        ({"mountPath": "/a", "subPath": "b/..c"}, []),
        ({"mountPath": "/a", "mountPropagation": "Both"}, [".mountPropagation NotSupported"]),
        ({"mountPath": "/a", "recursiveReadOnly": "IfPossible"}, [".recursiveReadOnly Forbidden"]),
        ({"mountPath": "/a", "recursiveReadOnly": "Disabled"}, []),
        (
            {
                "mountPath": "/a",
                "readOnly": True,
                "recursiveReadOnly": "Enabled",
                "mountPropagation": "HostToContainer",
            },
            [".recursiveReadOnly Forbidden"],
        ),
        ({"name": "i", "mountPath": "/a", "subPath": "b"}, []),
    ],
)
def test_a_mount(fields: Any, found: list[str]) -> None:
    mount = {"name": "v", **fields}
    assert wrong_in_container(VOLUMES, volumeMounts=[mount]) == [f"volumeMounts{each}" for each in found]


def test_one_volume_may_be_mounted_twice_but_not_in_one_place() -> None:
    mounts = [{"name": "v", "mountPath": path} for path in ("/a", "/b", "/a")]
    assert wrong_in_container(VOLUMES, volumeMounts=mounts) == ["volumeMounts[2].mountPath Invalid"]


def test_a_privileged_container_may_show_its_mounts_to_the_host() -> None:
    mount = {"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}
    assert wrong_in_container(VOLUMES, volumeMounts=[mount], securityContext={"privileged": True}) == []


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ([{"name": "p"}], ["[0].devicePath Required"]),
        ([{"devicePath": "/x"}], ["[0].name NotFound", "[0].name Required"]),
        ([{"name": "p", "devicePath": "/x/../y"}], ["[0].devicePath Invalid"]),
        ([{"name": "p", "devicePath": "/x"}] * 2, ["[1].devicePath Invalid", "[1].name Invalid"]),
    ],
)
def test_a_device(devices: Any, found: list[str]) -> None:
    assert wrong_in_container(VOLUMES, volumeDevices=devices) == [f"volumeDevices{each}" for each in found]


def test_a_volume_is_mounted_or_a_device() -> None:
    found = wrong_in_container(
        VOLUMES, volumeMounts=[{"name": "p", "mountPath": "/a"}], volumeDevices=[{"name": "p", "devicePath": "/a"}]
    )
    assert found == [
        "volumeDevices[0].devicePath Invalid",
        "volumeDevices[0].name Invalid",
        "volumeMounts[0].mountPath Invalid",
        "volumeMounts[0].name Invalid",
    ]
