"""Security contexts, of pods and of containers, and what is for one operating system only."""

from __future__ import annotations

from typing import Any

import pytest
from support.podrules import container, wrong, wrong_in_container

LOCAL: Any = {"type": "Localhost", "localhostProfile": "a/b.json"}


@pytest.mark.parametrize(
    ("context", "found"),
    [
        ({"runAsGroup": 2**31}, ["runAsGroup Invalid"]),
        ({"runAsUser": 2**31 - 1}, []),
        ({"seccompProfile": {}}, ["seccompProfile.type Required"]),
        ({"seccompProfile": {"type": "Localhost"}}, ["seccompProfile.localhostProfile Required"]),
        ({"seccompProfile": LOCAL | {"localhostProfile": "/a"}}, ["seccompProfile.localhostProfile Invalid"]),
        ({"appArmorProfile": LOCAL}, []),
        ({"appArmorProfile": {}}, ["appArmorProfile.type Required"]),
        ({"appArmorProfile": {"type": "X"}}, ["appArmorProfile.type NotSupported"]),
        ({"appArmorProfile": LOCAL | {"type": "Unconfined"}}, ["appArmorProfile.localhostProfile Invalid"]),
        ({"appArmorProfile": LOCAL | {"localhostProfile": " a"}}, ["appArmorProfile.localhostProfile Invalid"]),
        ({"appArmorProfile": LOCAL | {"localhostProfile": "a" * 4096}}, ["appArmorProfile.localhostProfile TooLong"]),
        ({"windowsOptions": {"gmsaCredentialSpec": ""}}, ["windowsOptions.gmsaCredentialSpec Invalid"]),
        ({"windowsOptions": {"gmsaCredentialSpecName": "A"}}, ["windowsOptions.gmsaCredentialSpecName Invalid"]),
        ({"windowsOptions": {"runAsUserName": "NT AUTHORITY\\SYSTEM"}}, []),
        ({"windowsOptions": {"runAsUserName": "a\\b\\c"}}, ["windowsOptions.runAsUserName Invalid"]),
        ({"windowsOptions": {"runAsUserName": "a\\"}}, ["windowsOptions.runAsUserName Invalid"]),
        ({"windowsOptions": {"runAsUserName": "..."}}, ["windowsOptions.runAsUserName Invalid"]),
        ({"windowsOptions": {"runAsUserName": "a@b"}}, ["windowsOptions.runAsUserName Invalid"]),
        ({"windowsOptions": {"runAsUserName": "u" * 105}}, ["windowsOptions.runAsUserName Invalid"]),
    ],
)
def test_what_pods_and_containers_share(context: Any, found: list[str]) -> None:
    expected = [f"securityContext.{each}" for each in found]
    assert wrong_in_container(securityContext=context) == expected
    assert wrong(securityContext=context) == expected


@pytest.mark.parametrize(
    ("context", "found"),
    [
        ({"procMount": "Default"}, []),
        ({"allowPrivilegeEscalation": False, "privileged": True}, [" Invalid"]),
        ({"allowPrivilegeEscalation": False, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}, [" Invalid"]),
        ({"allowPrivilegeEscalation": False, "capabilities": {"add": ["SYS_ADMIN"]}}, []),
    ],
)
def test_what_a_container_may(context: Any, found: list[str]) -> None:
    assert wrong_in_container(securityContext=context) == [f"securityContext{each}" for each in found]


def test_all_of_proc_is_for_pods_with_users_of_their_own() -> None:
    unmasked = [container(securityContext={"procMount": "Unmasked"})]
    assert wrong(containers=unmasked, hostUsers=False) == []
    assert wrong(hostUsers=False, hostPID=True, hostIPC=True) == ["HostIPC Forbidden", "HostPID Forbidden"]
    disk = {"name": "d", "persistentVolumeClaim": {"claimName": "d"}}
    block = [container(volumeDevices=[{"name": "d", "devicePath": "/d"}])]
    assert wrong(hostUsers=False, volumes=[disk], containers=block) == ["containers[0].volumeDevices Forbidden"]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"securityContext": {"fsGroup": -1}}, ["fsGroup Invalid"]),
        ({"securityContext": {"fsGroupChangePolicy": "Never"}}, ["fsGroupChangePolicy NotSupported"]),
        ({"securityContext": {"supplementalGroupsPolicy": "Strict"}}, []),
        ({"securityContext": {"seLinuxChangePolicy": "None"}}, ["seLinuxChangePolicy NotSupported"]),
        ({"securityContext": {"sysctls": [{"name": "net/core/x", "value": "1"}]}}, []),
        ({"hostIPC": True, "securityContext": {"sysctls": [{"name": "kernel.shmmax"}]}}, ["sysctls[0].name Invalid"]),
        ({"hostIPC": True, "securityContext": {"sysctls": [{"name": "net.a"}]}}, []),
        ({"securityContext": {"sysctls": [{"name": "a" * 254}]}}, ["sysctls[0].name Invalid"]),
    ],
)
def test_what_a_pod_may(fields: Any, found: list[str]) -> None:
    assert wrong(**fields) == [f"securityContext.{each}" for each in found]


@pytest.mark.parametrize(
    ("system", "fields", "found"),
    [
        ("linux", {}, []),
        ("plan9", {}, ["os NotSupported"]),
        ("linux", {"securityContext": {"windowsOptions": {}}}, ["securityContext.windowsOptions Forbidden"]),
        ("windows", {"shareProcessNamespace": False}, ["shareProcessNamespace Forbidden"]),
        ("windows", {"hostUsers": True}, ["hostUsers Forbidden"]),
        ("windows", {"hostNetwork": True}, []),
        ("windows", {"securityContext": {"sysctls": []}}, []),
        (
            "windows",
            {"containers": [container(securityContext={"privileged": False, "runAsNonRoot": True})]},
            ["containers[0].securityContext.privileged Forbidden"],
        ),
        (
            "windows",
            {"initContainers": [container(name="i", securityContext={"capabilities": {}})]},
            ["initContainers[0].securityContext.capabilities Forbidden"],
        ),
    ],
)
def test_what_is_for_one_system_only(system: str, fields: Any, found: list[str]) -> None:
    assert wrong(os={"name": system}, **fields) == found


def test_processes_of_a_windows_host_keep_to_themselves() -> None:
    options = {"windowsOptions": {"hostProcess": True}}
    assert wrong(hostNetwork=True, securityContext=options) == []
    assert wrong(securityContext=options) == ["hostNetwork Invalid"]
    other = container(name="d", securityContext={"windowsOptions": {"hostProcess": False}})
    assert wrong(hostNetwork=True, securityContext=options, containers=[container(), other]) == [
        "containers[1].securityContext.windowsOptions.hostProcess Invalid",
        "spec Invalid",
    ]
