"""The directories of the kubelet: in a place that anyone can write to, and removed whatever programs did to them."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.kubelet.directories import RootDirectory


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
