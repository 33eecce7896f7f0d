"""Mounts and block devices."""

from __future__ import annotations

from typing import Any

import pytest
from support.podrules import wrong_in_container

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
