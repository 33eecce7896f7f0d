"""The journal: what survives a restart, a kill and a full disk."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.apiserver.storage import Expired, Journal, JournalError, ObjectKey, Store


def key(name: str) -> ObjectKey:
    return ObjectKey(CONFIGMAPS, "default", name)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal"


def test_objects_and_revision_survive_a_restart(path: Path) -> None:
    store = Store(journal=Journal(path))
    store.put(key("a"), config_map("a", x="1"), expect=0)
    store.put(key("a"), config_map("a", x="2"), expect=1)
    store.put(key("b"), config_map("b"), expect=0)
    store.delete(key("b"))
    store.close()

    again = Store(journal=Journal(path))
    assert again.revision == 4
    record = again.get(key("a"))
    assert record is not None
    assert (record.revision, record.object["data"]) == (2, {"x": "2"})
    assert again.get(key("b")) is None
    assert again.put(key("c"), config_map("c"), expect=0).revision == 5
    again.close()


def test_history_does_not_survive_so_older_watchers_list_again(path: Path) -> None:
    store = Store(journal=Journal(path))
    store.put(key("a"), config_map("a"), expect=0)
    store.put(key("b"), config_map("b"), expect=0)
    store.close()
    again = Store(journal=Journal(path))
    with pytest.raises(Expired):
        again.watch(CONFIGMAPS, since=1)
    assert again.watch(CONFIGMAPS, since=2).pending == 0
    again.close()


def test_opening_compacts(path: Path) -> None:
    store = Store(journal=Journal(path))
    record = store.put(key("a"), config_map("a"), expect=0)
    for _ in range(20):
        record = store.put(key("a"), config_map("a"), expect=record.revision)
    store.close()
    assert len(path.read_bytes().splitlines()) == 22
    Store(journal=Journal(path)).close()
    assert len(path.read_bytes().splitlines()) == 2


@pytest.mark.parametrize("torn", [b"{", b'{"revision":9,"key":["","configmaps","default","z"]'])
def test_a_torn_last_line_is_cut_off(path: Path, torn: bytes) -> None:
    store = Store(journal=Journal(path))
    store.put(key("a"), config_map("a"), expect=0)
    store.close()
    path.write_bytes(path.read_bytes() + torn)
    again = Store(journal=Journal(path))
    assert again.revision == 1
    assert again.get(key("a")) is not None
    again.put(key("b"), config_map("b"), expect=0)
    again.close()
    third = Store(journal=Journal(path))
    assert third.get(key("b")) is not None
    third.close()


@pytest.mark.parametrize("damage", [b"garbage\n", b'{"revision":"x"}\n', b'{"revision":3,"key":["a"]}\n', b"[]\n"])
def test_damage_in_the_middle_is_reported_with_its_line(path: Path, damage: bytes) -> None:
    store = Store(journal=Journal(path))
    store.put(key("a"), config_map("a"), expect=0)
    store.close()
    header, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(header + b"\n" + damage + rest)
    journal = Journal(path)
    with pytest.raises(JournalError, match="line 2 is not a journal entry"):
        Store(journal=journal)
    journal.close()


def test_a_newer_format_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"format":99,"revision":0}\n')
    journal = Journal(path)
    with pytest.raises(JournalError, match="format 99"):
        Store(journal=journal)
    journal.close()


def test_a_second_process_cannot_open_the_journal(path: Path) -> None:
    store = Store(journal=Journal(path))
    with pytest.raises(JournalError, match="in use by another process"):
        Journal(path)
    store.close()
    Journal(path).close()


def test_a_failed_write_changes_neither_file_nor_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk takes the first half of a line; nothing of it may stay."""
    store = Store(journal=Journal(path))
    store.put(key("a"), config_map("a"), expect=0)
    before = path.read_bytes()
    write = os.write
    room = 20

    def nearly_full(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, bytes(data[:room]))
        room -= written
        return written

    monkeypatch.setattr(os, "write", nearly_full)
    with pytest.raises(OSError, match="No space left"):
        store.put(key("b"), config_map("b"), expect=0)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert store.get(key("b")) is None
    assert store.revision == 1
    store.put(key("b"), config_map("b"), expect=0)
    store.close()


_WRITER = """
import sys
from pathlib import Path
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.apiserver.storage import Journal, ObjectKey, Store
store = Store(journal=Journal(Path(sys.argv[1])))
number = 0
while True:
    number += 1
    name = f"cm-{number}"
    store.put(ObjectKey(CONFIGMAPS, "default", name), {"metadata": {"name": name, "namespace": "default"}}, expect=0)
    print(number, flush=True)
"""


def test_a_killed_process_loses_nothing_that_it_acknowledged(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 200:
                break
        process.send_signal(signal.SIGKILL)
        acknowledged = [line.strip() for line in process.stdout.readlines()]
    newest = max([200, *(int(number) for number in acknowledged if number.isdigit())])
    store = Store(journal=Journal(path))
    assert all(store.get(key(f"cm-{number}")) is not None for number in range(1, newest + 1))
    store.close()
