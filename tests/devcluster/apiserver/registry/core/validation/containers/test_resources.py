"""Resources and security contexts of containers."""

from __future__ import annotations

from typing import Any

import pytest
from support.podlifecycle import container, wrong, wrong_in_container

from trainmaster.devcluster.apiserver.registry.core.validation.containers.resources import requested_by_containers


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}}, []),
        ({"requests": {"cpu": -1}}, ["requests[cpu] Invalid"]),
        (
            {"requests": {"requests.nvidia.com/gpu": 1}},
            ["limits Required", "requests[requests.nvidia.com/gpu] Invalid"],
        ),
        ({"requests": {"requests.cpu": 1}}, ["requests[requests.cpu] Invalid"]),
        ({"requests": {"services": "0.5"}}, ["requests[services] Invalid"]),
        ({"limits": {"hugepages-2Mi": "4Mi"}}, [" Forbidden"]),
        ({"claims": [{}]}, ["claims[0] Required"]),
    ],
)
def test_what_a_container_asks_for(resources: Any, found: list[str]) -> None:
    expected = sorted(f"resources.{each}" if not each.startswith(" ") else f"resources{each}" for each in found)
    assert wrong_in_container(resources=resources) == expected


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        ([{"name": "a", "request": "x"}, {"name": "a", "request": "y"}, {"name": "b"}], []),
        ([{"name": "a", "request": "x"}, {"name": "a", "request": "x"}], ["claims[1] Duplicate"]),
        ([{"name": "a", "request": "x"}, {"name": "a"}], ["claims[1] Duplicate"]),
        ([{"name": "a"}, {"name": "a", "request": "x"}], ["claims[1] Duplicate"]),
        ([{"name": "a", "request": "X"}], ["claims[0].request Invalid"]),
    ],
)
def test_a_claim_is_used_as_a_whole_or_by_its_requests(claims: Any, found: list[str]) -> None:
    pod = {"resourceClaims": [{"name": name, "resourceClaimName": "x"} for name in "ab"]}
    assert wrong_in_container(pod, resources={"claims": claims}) == [f"resources.{each}" for each in found]


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        ({"resourceClaimName": "x"}, [".name Required"]),
        ({"name": "A", "resourceClaimName": "x"}, [".name Invalid"]),
        ({"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}, [" Invalid"]),
        ({"name": "a", "resourceClaimTemplateName": "Y"}, [".resourceClaimTemplateName Invalid"]),
        ({"name": "a", "resourceClaimName": ""}, [".resourceClaimName Invalid"]),
    ],
)
def test_a_claim_of_a_pod_has_a_name_and_one_source(claim: Any, found: list[str]) -> None:
    assert wrong(resourceClaims=[claim]) == [f"resourceClaims[0]{each}" for each in found]


@pytest.mark.parametrize(
    ("of_pod", "of_container", "found"),
    [
        ({"limits": {"cpu": 2}}, {"requests": {"cpu": 1}}, []),
        ({"requests": {"cpu": 2}, "limits": {"memory": "1Gi"}}, {"limits": {"cpu": 2}}, []),
        ({"limits": {"cpu": 1}}, {"limits": {"cpu": 2}, "requests": {"cpu": 1}}, ["containers[0][cpu].limits Invalid"]),
        ({"limits": {"ephemeral-storage": 1}}, {}, ["limits[ephemeral-storage] NotSupported"]),
        ({"limits": {"memory": -1}}, {}, ["limits[memory] Invalid", "requests[memory] Invalid"]),
    ],
)
def test_what_a_pod_asks_for_as_a_whole(of_pod: Any, of_container: Any, found: list[str]) -> None:
    assert wrong(resources=of_pod, containers=[container(resources=of_container)]) == [
        f"resources.{each}" for each in found
    ]


def test_containers_before_the_others_count_by_the_greatest_and_sidecars_always() -> None:
    def asking(cpu: int, **fields: Any) -> Any:
        return container(resources={"requests": {"cpu": cpu}}, **fields)

    spec = {
        "containers": [asking(1), asking(2)],
        "initContainers": [asking(7), asking(1, restartPolicy="Always"), asking(5)],
    }
    assert str(requested_by_containers(spec)["cpu"]) == "7"
    spec["initContainers"].append(asking(8))
    assert str(requested_by_containers(spec)["cpu"]) == "9"


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
