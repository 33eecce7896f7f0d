"""Mounts of volumes, which stay inside them, and what a container in namespaces gets mounted besides."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.devcluster.kubelet.directories import PodFiles
from trainmaster.devcluster.kubelet.volumes.mounts import (
    Namespaces,
    installation,
    mounted_paths,
    preserved_binds,
    sandbox_of,
    volume_binds,
)
from trainmaster.runtime.jsontree import JsonObject

FILES = PodFiles(Path("/var/state/pods/u"), Path("/tmp/trainmaster-0/u"))


def test_generated_volumes_are_read_only_and_others_as_they_say() -> None:
    mounts = [
        {"name": "cm", "mountPath": "/etc/cm/"},
        {"name": "data", "mountPath": "/data"},
        {"name": "data", "mountPath": "/ro", "readOnly": True},
        {"name": "data", "mountPath": "/dev/shm"},
    ]
    pod = {"spec": {"volumes": [{"name": "cm", "configMap": {"name": "x"}}, {"name": "data", "emptyDir": {}}]}}
    paths = {"/etc/cm": "/v/cm", "/data": "/v/data", "/ro": "/v/data", "/dev/termination-log": "/t"}
    assert volume_binds({"volumeMounts": mounts}, pod, paths) == [
        ("/v/cm", "/etc/cm", True),
        ("/v/data", "/data", False),
        ("/v/data", "/ro", True),
    ]


def test_what_a_volume_would_hide_is_shown_again() -> None:
    """A volume at /workspace must not take away the environment that was installed there."""
    needed = ["/workspace/.venv", "/workspace/.venv/lib", "/usr/bin"]
    hidden = preserved_binds([("/v/data", "/workspace", False)], files=FILES, needed=needed)
    assert hidden == [("/workspace/.venv", "/workspace/.venv", False)]
    hidden = preserved_binds([("/v", "/tmp", False), ("/v", "/var", False)], files=FILES, needed=needed)
    assert [target for _, target, _ in hidden] == [
        str(place) for place in (FILES.tmp, FILES.programs, FILES.root, FILES.python)
    ]
    assert preserved_binds([("/v", "/workspaces", False)], files=FILES, needed=needed) == []


def test_the_installation_is_where_this_python_runs_from() -> None:
    assert {sys.prefix, str(Path(sys.executable).parent)} <= installation()


def test_a_volume_at_the_hosts_file_wins() -> None:
    namespaces = Namespaces(hosts=Path("/hosts"), user_namespace=True)
    ours = sandbox_of(namespaces, [], view=Path("/view"), hostname="h")
    assert ours["binds"] == [("/hosts", "/etc/hosts", True)]
    theirs = sandbox_of(namespaces, [("/v", "/etc/hosts", False)], view=Path("/view"), hostname="h")
    assert theirs["binds"] == [("/v", "/etc/hosts", False)]


def container(*mounts: JsonObject) -> JsonObject:
    return {"name": "c", "volumeMounts": list(mounts)}


def test_mount_paths(tmp_path: Path) -> None:
    mounted = container(
        {"name": "v", "mountPath": "/data/"},
        {"name": "v", "mountPath": "/sub", "subPath": "a/b"},
        {"name": "v", "mountPath": "/own", "subPathExpr": "$(POD)"},
        {"name": "v", "mountPath": "/dev/shm"},
    )
    paths = mounted_paths(mounted, {"v": tmp_path}, {"POD": "p-0"})
    assert paths == {"/data": str(tmp_path), "/sub": str(tmp_path / "a/b"), "/own": str(tmp_path / "p-0")}
    assert (tmp_path / "a/b").is_dir()


@pytest.mark.parametrize(
    "mount",
    [
        {"name": "unknown", "mountPath": "/x"},
        {"name": "v", "mountPath": "/"},
        {"name": "v", "mountPath": "/x", "subPath": "../up"},
        {"name": "v", "mountPath": "/x", "subPath": "/abs"},
        {"name": "v", "mountPath": "/x", "subPath": "link/y"},
    ],
)
def test_bad_mounts_are_refused(tmp_path: Path, mount: JsonObject) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "link").symlink_to("/")
    with pytest.raises(PodRejectedError) as caught:
        mounted_paths(container(mount), {"v": volume}, {})
    assert caught.value.reason == "InvalidVolumeMount"
