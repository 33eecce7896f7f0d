"""What containers are given: their environment, and the directories of the kubelet."""

import base64
import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, SECRETS, GroupResource
from trainmaster.devcluster.kubelet.container import CreateContainerError
from trainmaster.devcluster.kubelet.directories import RootDirectory
from trainmaster.devcluster.kubelet.environment import PodInfo, base_environment, expand, pod_environment, thread_limit
from trainmaster.runtime.jsontree import JsonObject

OBJECTS: dict[tuple[GroupResource, str], JsonObject] = {
    (CONFIGMAPS, "settings"): {"data": {"LR": "0.1", "shared": "map", "a=b": "not a name"}},
    (SECRETS, "keys"): {"data": {"token": base64.b64encode(b"s3cret").decode(), "raw": "/w=="}},
}


def lookup(resource: GroupResource, namespace: str, name: str) -> JsonObject | None:
    assert namespace == "team"
    return OBJECTS.get((resource, name))


POD: JsonObject = {
    "metadata": {
        "name": "p-0",
        "namespace": "team",
        "uid": "u-1",
        "labels": {"batch.kubernetes.io/job-completion-index": "3"},
        "annotations": {"batch.kubernetes.io/job-completion-index": "4", "quote": 'a "b"'},
    },
    "spec": {"nodeName": "laptop", "containers": [{"name": "other", "resources": {"limits": {"memory": "1Gi"}}}]},
}
POD_INFO = PodInfo(pod=POD, pod_ip="127.20.3.4", capacity={"cpu": "8", "memory": "16Gi"})


def environment(*env: JsonObject, **container: Any) -> dict[str, str]:
    return pod_environment({"name": "c", "env": list(env), **container}, POD_INFO, services={"S": "svc"}, lookup=lookup)


def value(source: JsonObject, **container: Any) -> str | None:
    return environment({"name": "X", "valueFrom": source}, **container).get("X")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)-$(B)", "1-$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("$(nested $(A))", "$(nested 1)"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


def test_variables_see_what_was_defined_before_them_and_win_over_env_from() -> None:
    found = environment(
        {"name": "EARLY", "value": "$(LATE)"},
        {"name": "LATE", "value": "$(S)/$(CM_LR)"},
        {"name": "AGAIN", "value": "$(LATE)!"},
        {"name": "EMPTY"},
        envFrom=[{"prefix": "CM_", "configMapRef": {"name": "settings"}}],
    )
    assert found["EARLY"] == "$(LATE)"
    assert found["AGAIN"] == "svc/0.1!"
    assert found["EMPTY"] == ""
    sources = [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "keys"}}]
    found = environment({"name": "shared", "value": "mine"}, envFrom=sources)
    assert (found["shared"], found["LR"], found["token"]) == ("mine", "0.1", "s3cret")
    assert "a=b" not in found


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "p-0"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['batch.kubernetes.io/job-completion-index']", "3"),
        ("metadata.annotations['batch.kubernetes.io/job-completion-index']", "4"),
        ("metadata.labels['missing']", ""),
        ("spec.nodeName", "laptop"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "127.20.3.4"),
        ("status.podIPs", "127.20.3.4"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_field_references(path: str, expected: str) -> None:
    assert value({"fieldRef": {"fieldPath": path}}) == expected


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "limits.cpu", "divisor": "0"}, "2"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "512"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "16"),
        ({"resource": "limits.memory", "containerName": "other"}, "1073741824"),
        ({"resource": "requests.cpu"}, "0"),
    ],
)
def test_resource_references(reference: JsonObject, expected: str) -> None:
    resources = {"limits": {"cpu": "1500m"}, "requests": {"memory": "512Mi"}}
    assert value({"resourceFieldRef": reference}, resources=resources) == expected


def test_keys_of_config_maps_and_secrets() -> None:
    assert value({"configMapKeyRef": {"name": "settings", "key": "LR"}}) == "0.1"
    assert value({"secretKeyRef": {"name": "keys", "key": "token"}}) == "s3cret"
    assert os.fsencode(value({"secretKeyRef": {"name": "keys", "key": "raw"}}) or "") == b"\xff"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "a"}}, 'configmap "none" not found'),
        ({"secretKeyRef": {"name": "none", "key": "a"}}, 'secret "none" not found'),
        ({"configMapKeyRef": {"name": "settings", "key": "a"}}, "couldn't find key a in ConfigMap team/settings"),
        ({"secretKeyRef": {"name": "keys", "key": "a"}}, "couldn't find key a in Secret team/keys"),
        ({"fieldRef": {"fieldPath": "spec.bogus"}}, "unsupported fieldPath: spec.bogus"),
        ({"resourceFieldRef": {"resource": "bogus"}}, "unsupported container resource: bogus"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "x"}}, "not a quantity"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "containerName": "x"}}, "container x not found"),
        ({"fileKeyRef": {}}, "no supported source in valueFrom: fileKeyRef"),
    ],
)
def test_what_is_missing_says_so_and_may_still_come(source: JsonObject, message: str) -> None:
    with pytest.raises(CreateContainerError) as caught:
        value(source)
    assert caught.value.reason == "CreateContainerConfigError"
    assert message in caught.value.message


def test_optional_references_leave_the_variable_undefined() -> None:
    assert value({"configMapKeyRef": {"name": "none", "key": "a", "optional": True}}) is None
    assert value({"secretKeyRef": {"name": "keys", "key": "a", "optional": True}}) is None
    assert environment(envFrom=[{"secretRef": {"name": "none", "optional": True}}]) == {"S": "svc"}
    with pytest.raises(CreateContainerError):
        environment(envFrom=[{"configMapRef": {"name": "none"}}])


def test_the_base_is_clean() -> None:
    host = {"PATH": "/usr/bin:/bin", "AWS_SECRET_ACCESS_KEY": "x", "HF_HOME": "/cache", "PYTHONPATH": "/y"}
    base = base_environment(hostname="h", home=Path("/home"), tmp=Path("/t"), search_path=[Path("/bin0")], host=host)
    assert base["PATH"] == f"/bin0:{Path(sys.executable).parent}:/usr/bin:/bin"
    assert (base["HOME"], base["TMPDIR"], base["HOSTNAME"], base["HF_HOME"]) == ("/home", "/t", "h", "/cache")
    assert base["PYTHONUNBUFFERED"] == "1"
    assert not {"AWS_SECRET_ACCESS_KEY", "PYTHONPATH"} & base.keys()


@pytest.mark.parametrize(
    ("host", "cache"),
    [
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c", "PIP_CACHE_DIR": "/pip"}, "/pip"),
        ({"HOME": "/h"}, "/h/Library/Caches/pip" if sys.platform == "darwin" else "/h/.cache/pip"),
        ({}, None),
    ],
)
def test_pods_share_the_cache_that_pip_has_on_the_host(host: dict[str, str], cache: str | None) -> None:
    """Their HOME is another one, and a wheel of 2 GB would be fetched for each of them."""
    base = base_environment(hostname="h", home=Path("/home"), tmp=Path("/t"), search_path=[], host=host)
    assert base.get("PIP_CACHE_DIR") == cache


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"requests": {"cpu": "1500m"}}, {"OMP_NUM_THREADS": "2"}),
        ({"limits": {"cpu": 4}}, {"OMP_NUM_THREADS": "4"}),
        ({"requests": {"memory": "1Gi"}}, {}),
        ({"requests": {"cpu": "many"}}, {}),
        (None, {}),
    ],
)
def test_thread_limit_follows_the_cpu_request(resources: JsonObject | None, expected: dict[str, str]) -> None:
    assert thread_limit({"resources": resources}) == expected


@pytest.fixture
def root(tmp_path: Path) -> RootDirectory:
    made = RootDirectory(tmp_path / "state", tmp=tmp_path)
    made.prepare()
    return made


def _file(place: Path) -> None:
    place.write_text("theirs")


def _link(place: Path) -> None:
    (place.parent / "target").mkdir(mode=0o777)
    place.symlink_to(place.parent / "target")


def _dangling_link(place: Path) -> None:
    place.symlink_to(place.parent / "nothing")


def _directory_of_others(place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory of somebody else")
    place.mkdir(mode=0o777)
    os.chown(place, 12345, 12345)


@pytest.mark.parametrize("squat", [_file, _link, _dangling_link, _directory_of_others])
def test_a_squatted_directory_for_temporary_files_is_left_alone(
    tmp_path: Path, squat: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    root = RootDirectory(tmp_path / "state", tmp=shared)
    place = root.pod("u").tmp.parent
    squat(place)
    before = place.lstat()
    root.prepare()
    taken = root.pod("u").tmp.parent
    assert taken != place
    assert taken.parent == shared
    found = taken.lstat()
    assert stat.S_ISDIR(found.st_mode)
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.getuid(), 0o700)
    assert f"{place} belongs to somebody else; temporary files of pods are in {taken}" in caplog.text
    root.pod("u").tmp.mkdir()
    root.remove_temporary()
    assert not taken.exists()
    after = place.lstat()
    assert (after.st_ino, after.st_mode, after.st_uid) == (before.st_ino, before.st_mode, before.st_uid)
    assert not (shared / "target").exists() or not any((shared / "target").iterdir())


def test_a_directory_of_ours_that_others_may_enter_is_closed_to_them(tmp_path: Path) -> None:
    root = RootDirectory(tmp_path / "state", tmp=tmp_path)
    place = root.pod("u").tmp.parent
    place.mkdir()
    place.chmod(0o777)
    root.prepare()
    assert root.pod("u").tmp.parent == place
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_directory_that_a_program_closed_is_removed(root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read all directories; whoever else runs a cluster may not."""
    pod = root.pod("u").root
    deep = pod / "open" / "closed" / "below"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    for directory in (deep, deep.parent):
        directory.chmod(0)
    opened = os.open

    def open_as_others(path: Any, *arguments: Any, dir_fd: int | None = None, **options: Any) -> int:
        mode = os.stat(path, dir_fd=dir_fd).st_mode
        if stat.S_ISDIR(mode) and not mode & stat.S_IRUSR:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *arguments, dir_fd=dir_fd, **options)

    monkeypatch.setattr(os, "open", open_as_others)
    root.remove_pod("u")
    assert not pod.exists()


def test_what_vanishes_while_it_is_removed_is_no_error(root: RootDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = root.pod("u").root
    (pod / "a" / "b").mkdir(parents=True)
    opened = os.open

    def open_too_late(path: Any, *arguments: Any, **options: Any) -> int:
        if path == "a":
            monkeypatch.setattr(os, "open", opened)
            shutil.rmtree(pod / "a")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", open_too_late)
    root.remove_pod("u")
    assert not pod.exists()
