"""Volumes and their mounts, which stay inside them."""

import base64
import sys
from pathlib import Path
from typing import Any

import pytest
from support.disk import full_disk

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS, GroupResource
from trainmaster.devcluster.kubelet.container import CreateContainerError, PodRejectedError
from trainmaster.devcluster.kubelet.directories import PodFiles
from trainmaster.devcluster.kubelet.environment import PodInfo
from trainmaster.devcluster.kubelet.volumes import (
    Namespaces,
    VolumeManager,
    installation,
    mounted_paths,
    preserved_binds,
    sandbox_of,
    volume_binds,
)
from trainmaster.runtime.jsontree import JsonObject


class Mounts:
    """A pod in namespace `ns` with the objects that it may refer to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.objects: dict[tuple[GroupResource, str], JsonObject] = {
            (CONFIGMAPS, "settings"): {
                "data": {"host": "peer.svc", "other": "x"},
                "binaryData": {"blob": base64.b64encode(b"\xff\x00").decode()},
            },
            (SECRETS, "keys"): {"data": {"token": base64.b64encode(b"peer.svc").decode()}},
            (PERSISTENT_VOLUME_CLAIMS, "ws"): {"metadata": {"name": "ws", "namespace": "ns"}},
        }

    def mount(self, **source: Any) -> Path:
        pod = {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": "2", "a": 'say "x"'}},
            "spec": {
                "volumes": [{"name": "v", **source}],
                "containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}],
            },
        }
        volume_manager = VolumeManager(
            PodInfo(pod=pod, pod_ip="127.1.1.1", capacity={}),
            directory=self.directory / "volumes",
            claims=self.directory / "claims",
            lookup=lambda resource, namespace, name: self.objects.get((resource, name)) if namespace == "ns" else None,
            rewrite=lambda text: text.replace("peer.svc", "127.0.0.1"),
        )
        return volume_manager.mount_all()["v"]


@pytest.fixture
def mounts(tmp_path: Path) -> Mounts:
    return Mounts(tmp_path)


def visible(volume: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(volume)): path.read_bytes()
        for path in volume.rglob("*")
        if path.is_file() and ".." not in str(path.relative_to(volume)).split("/")[0]
    }


def test_empty_dir_is_kept_when_mounted_again(mounts: Mounts) -> None:
    (mounts.mount(emptyDir={}) / "file").write_text("kept")
    assert (mounts.mount(emptyDir={"medium": "Memory"}) / "file").read_text() == "kept"


def test_config_map_files_with_names_rewritten_are_all_replaced_at_once(mounts: Mounts) -> None:
    assert visible(mounts.mount(configMap={"name": "none", "optional": True})) == {}
    volume = mounts.mount(configMap={"name": "settings"})
    assert visible(volume) == {"host": b"127.0.0.1", "other": b"x", "blob": b"\xff\x00"}
    assert (volume / "host").readlink() == Path("..data/host")
    mounts.objects[CONFIGMAPS, "settings"] = {"data": {"host": "new"}}
    assert mounts.mount(configMap={"name": "settings"}) == volume
    assert (volume / "host").read_bytes() == b"new"
    assert len([path for path in volume.iterdir() if path.is_dir() and not path.is_symlink()]) == 1


def test_a_volume_that_a_full_disk_refuses_leaves_nothing_and_the_old_one_as_it_is(mounts: Mounts) -> None:
    volume = mounts.mount(configMap={"name": "settings"})
    before = sorted(path.name for path in volume.iterdir())
    mounts.objects[CONFIGMAPS, "settings"] = {"data": {"host": "n" * 100}}
    with full_disk(room=10), pytest.raises(OSError, match="too large"):
        mounts.mount(configMap={"name": "settings"})
    assert sorted(path.name for path in volume.iterdir()) == before
    assert (volume / "host").read_bytes() == b"127.0.0.1"
    mounts.mount(configMap={"name": "settings"})
    assert (volume / "host").read_bytes() == b"n" * 100


def test_secret_files_are_left_as_they_are(mounts: Mounts) -> None:
    volume = mounts.mount(secret={"secretName": "keys", "defaultMode": 0o400})
    assert (volume / "token").read_bytes() == b"peer.svc"
    assert (volume / "token").stat().st_mode & 0o777 == 0o400


def test_secret_files_have_no_rights_for_a_group(mounts: Mounts) -> None:
    """All processes are of the user who owns them, and ssh refuses a key of its user that others may read."""
    items = [{"key": "token", "path": "id_rsa", "mode": 0o640}]
    volume = mounts.mount(secret={"secretName": "keys", "items": items})
    assert (volume / "id_rsa").stat().st_mode & 0o777 == 0o600


def test_items_choose_place_and_mode(mounts: Mounts) -> None:
    items = [{"key": "other", "path": "deep/er/file", "mode": 0o600}]
    volume = mounts.mount(configMap={"name": "settings", "items": items})
    assert (volume / "deep/er/file").read_bytes() == b"x"
    assert (volume / "deep/er/file").stat().st_mode & 0o777 == 0o600
    assert not (volume / "host").exists()


def test_projected_sources_share_a_directory(mounts: Mounts) -> None:
    fields = [
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}},
    ]
    sources = [
        {"configMap": {"name": "settings", "items": [{"key": "other", "path": "cm"}]}},
        {"secret": {"name": "keys"}},
        {"secret": {"name": "missing", "optional": True}},
        {"downwardAPI": {"items": fields}},
    ]
    volume = mounts.mount(projected={"sources": sources})
    labels = b'a="say \\"x\\""\nb="2"'
    assert visible(volume) == {"cm": b"x", "token": b"peer.svc", "name": b"p", "labels": labels, "cpu": b"2"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
        ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
        ({"persistentVolumeClaim": {"claimName": "none"}}, 'persistentvolumeclaim "none" not found'),
        (
            {"configMap": {"name": "settings", "items": [{"key": "x", "path": "x"}]}},
            "configmap references non-existent config key: x",
        ),
    ],
)
def test_what_is_missing_may_still_come(mounts: Mounts, source: JsonObject, message: str) -> None:
    with pytest.raises(CreateContainerError, match=message):
        mounts.mount(**source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"nfs": {"server": "x"}}, "volume 'v' of type nfs is not supported"),
        ({"hostPath": {"path": "/etc"}}, "volume 'v' of type hostPath is not supported"),
        ({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}, "serviceAccountToken is not supported"),
        ({"configMap": {"name": "settings", "items": [{"key": "host", "path": "../x"}]}}, "must not contain"),
        ({"configMap": {"name": "settings", "items": [{"key": "host", "path": "/x"}]}}, "must be relative"),
        ({"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "spec.x"}}]}}, "unsupported fieldPath"),
    ],
)
def test_what_cannot_be_mounted_fails_the_pod(mounts: Mounts, source: JsonObject, message: str) -> None:
    with pytest.raises(PodRejectedError, match=message):
        mounts.mount(**source)


def test_claims_are_shared(mounts: Mounts) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "ws"}}
    (mounts.mount(**claim) / "model").write_text("weights")
    assert (mounts.mount(**claim) / "model").read_text() == "weights"


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
