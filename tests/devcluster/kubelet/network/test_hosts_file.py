"""A hosts file that is read while it changes: lines are there as a whole or not at all."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support.disk import full_disk

from trainmaster.devcluster.kubelet.network.hosts_file import HostsFile


def lines(path: Path) -> list[str]:
    return [line.rstrip() for line in path.read_text().splitlines() if not line.startswith("#")]


def test_every_write_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver may read between any two system calls."""
    file = HostsFile(tmp_path / "hosts")
    possible = {f"127.0.0.{number}\tname-{number}{'-long' * (number % 4)}" for number in range(9)}
    seen = 0
    real = os.pwrite

    def pwrite(descriptor: int, content: bytes, offset: int) -> int:
        nonlocal seen
        part = real(descriptor, content[:7], offset)  # as an almost full disk does
        assert set(lines(file.path)) <= possible
        seen += 1
        return part

    monkeypatch.setattr(os, "pwrite", pwrite)
    choice = random.Random(7)  # the seed of this test
    for _ in range(200):
        wanted = choice.sample(sorted(possible), choice.randrange(6))
        file.show("services", wanted)
        assert sorted(lines(file.path)) == sorted(wanted)
    assert seen > 1000


def test_it_does_not_grow_without_end(tmp_path: Path) -> None:
    file = HostsFile(tmp_path / "hosts")
    file.show("own", ["127.0.0.1\tlocalhost"])
    for number in range(100):
        file.show(number % 3, [f"127.0.0.{number}\tname-{number}", "127.0.1.1\tother"])
        file.show((number + 1) % 3, [])
    assert len(file.path.read_bytes()) < 400
    assert lines(file.path)[0] == "127.0.0.1\tlocalhost"


def test_on_a_full_disk_half_a_line_is_none_and_the_next_call_writes_it(tmp_path: Path) -> None:
    file = HostsFile(tmp_path / "hosts")
    file.show("a", ["127.0.0.1\tfirst"])
    with full_disk(room=25), pytest.raises(OSError, match="too large"):
        file.show("b", ["127.0.0.2\tsecond", "127.0.0.3\tthird"])
    assert lines(file.path) == ["127.0.0.1\tfirst"]
    file.show("b", ["127.0.0.2\tsecond", "127.0.0.3\tthird"])
    assert lines(file.path) == ["127.0.0.1\tfirst", "127.0.0.2\tsecond", "127.0.0.3\tthird"]


def test_what_an_earlier_run_left_is_gone(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.9\told\n" * 100)
    file = HostsFile(tmp_path / "hosts")
    file.show("a", ["127.0.0.1\tnew"])
    assert file.path.read_text() == "127.0.0.1\tnew\n"
