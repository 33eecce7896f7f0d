"""Sandboxes: what a process sees in one, what the host sees of it, and that nothing is left."""

import codecs
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.machine import needs_namespaces

from trainmaster.devcluster.kubelet.runtime import sandbox

pytestmark = [pytest.mark.nightly, needs_namespaces]

KINDS = [True, False] if os.geteuid() == 0 else [True]
NOBODY = 65534


class Inside:
    """Runs functions in a sandbox, each in a child of its own."""

    def __init__(self, directory: Path, *, user_namespace: bool) -> None:
        self.directory = directory
        self.root = directory / "view"
        self.root.mkdir()
        self.user_namespace = user_namespace

    def file(self, name: str, text: str = "content") -> str:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def run(self, look: Callable[[], Any], *binds: tuple[str, str, bool], user: int | None = None) -> Any:
        settings = {"root": str(self.root), "user_namespace": self.user_namespace, "hostname": "pod-0", "binds": binds}

        def work() -> Any:
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
                ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as after an exec, /proc/self is its own
            sandbox.enter(settings)
            return look()

        return in_child(work)


def in_child(work: Callable[[], Any]) -> Any:
    """Give what a function returns, or raise what it raises, in a fork of this process."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = json.dumps({"value": work()})
        except BaseException as error:
            answer = json.dumps({"error": f"{type(error).__name__}: {error}"})
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = json.load(pipe)
    os.waitpid(pid, 0)
    if "error" in answer:
        raise AssertionError(answer["error"])
    return answer["value"]


@pytest.fixture(params=KINDS, ids=lambda kind: "user-namespace" if kind else "privileged")
def inside(request: pytest.FixtureRequest, tmp_path: Path) -> Inside:
    return Inside(tmp_path, user_namespace=request.param)


def entries(directory: str) -> list[str]:
    return sorted(path.name for path in Path(directory).iterdir())


def mounts() -> list[str]:
    return Path("/proc/self/mounts").read_text().splitlines()


def test_hosts_and_host_name_are_private(inside: Inside) -> None:
    hosts = inside.file("hosts", "127.77.0.1 master\n")
    before = (Path("/etc/hosts").read_text(), os.uname().nodename, mounts())
    seen = inside.run(lambda: [Path("/etc/hosts").read_text(), os.uname().nodename], (hosts, "/etc/hosts", True))
    assert seen == ["127.77.0.1 master\n", "pod-0"]
    assert (Path("/etc/hosts").read_text(), os.uname().nodename, mounts()) == before


@pytest.mark.parametrize(
    "target", ["/tm-none/deep/file", "/usr/tm-none/file", "/etc/tm-none", "/var/run/tm-none/x", "/dev/termination-log"]
)
def test_mount_points_that_the_host_lacks_are_not_made_there(inside: Inside, target: str) -> None:
    source = inside.file("volume/file")
    above = str(Path(target).parent)
    siblings = entries(above) if Path(above).is_dir() and above != "/dev" else []
    seen = inside.run(lambda: [Path(target).read_text(), entries(above)], (source, target, False))
    assert seen[0] == "content"
    assert {*siblings, Path(target).name} <= set(seen[1])
    assert not Path(target).exists()


def test_what_is_written_to_a_volume_is_there_and_what_is_written_beside_it_is_gone(inside: Inside) -> None:
    volume = Path(inside.file("volume/file")).parent

    def write() -> None:
        Path("/tm-workspace/new").write_text("kept")
        Path("/tm-other").mkdir()

    inside.run(write, (str(volume), "/tm-workspace", False))
    assert (volume / "new").read_text() == "kept"
    assert not Path("/tm-other").exists()
    assert list(inside.root.iterdir()) == []


def test_a_link_in_a_volume_does_not_lead_a_mount_to_the_host(inside: Inside) -> None:
    volume = inside.directory / "volume"
    volume.mkdir()
    (volume / "link").symlink_to("/etc")
    binds = [(str(volume), "/tm-data", False), (inside.file("x"), "/tm-data/link/tm-none", False)]
    with pytest.raises(AssertionError, match="leads out of its volume by a symbolic link"):
        inside.run(lambda: None, *binds)
    assert not Path("/etc/tm-none").exists()


def test_the_rest_of_the_host_is_there(inside: Inside) -> None:
    seen = inside.run(lambda: [entries("/"), entries("/proc/self/fd") != [], os.geteuid()])
    assert set(entries("/")) <= set(seen[0])
    assert seen[1:] == [True, os.geteuid()]
    inside.run(lambda: Path("/dev/null").write_text("x") and entries("/dev/shm"))


def test_programs_run_and_may_make_sandboxes_of_their_own(inside: Inside) -> None:
    def nested() -> Any:
        directory = "/tm-nested"
        Path(directory).mkdir()
        return sandbox.probe(directory)

    assert "user_namespace" in inside.run(nested)
    assert inside.run(lambda: subprocess.check_output([sys.executable, "-c", "print(1)"], text=True)) == "1\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_users_without_privileges_can_have_one() -> None:
    codecs.lookup("ascii")  # loaded while the standard library, which may be private to root, can still be read
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # where others can go, unlike those of pytest
        Path(directory).chmod(0o755)
        inside = Inside(Path(directory), user_namespace=True)
        os.chown(inside.root, NOBODY, NOBODY)
        hosts = inside.file("hosts", "127.77.0.1 master\n")
        binds = [(hosts, "/etc/hosts", True), (hosts, "/tm-none/file", False)]
        seen = inside.run(
            lambda: [Path("/etc/hosts").read_text(), os.geteuid(), Path("/tm-none/file").exists()], *binds, user=NOBODY
        )
        assert seen == ["127.77.0.1 master\n", NOBODY, True]


def test_what_cannot_be_mounted_is_named(inside: Inside) -> None:
    with pytest.raises(AssertionError, match=r"cannot mount /no/such at /tm-data: No such file or directory"):
        inside.run(lambda: None, ("/no/such", "/tm-data", False))


@pytest.mark.parametrize("reaped", [False, True])
def test_a_container_that_has_ended_cannot_be_joined(*, reaped: bool) -> None:
    """It may end at any time, and its shim may take a moment to notice: neither is a fault of the system."""
    us, ended = os.getpid(), os.fork()
    if ended == 0:
        os._exit(0)
    os.waitid(os.P_PID, ended, os.WEXITED | (0 if reaped else os.WNOWAIT))
    try:
        with pytest.raises(AssertionError, match=r"SandboxError: the container has ended$"):
            in_child(lambda: sandbox.join(ended, parent=us, user_namespace=True))
    finally:
        if not reaped:
            os.waitpid(ended, 0)
