"""The journal: what survives a restart, a kill and a full disk."""

import errno
import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
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
    """History does not, so older watchers list again."""
    store = Store(journal=Journal(path))
    store.put(key("a"), config_map("a", x="1"), expect=0)
    store.put(key("a"), config_map("a", x="2"), expect=1)
    store.put(key("b"), config_map("b"), expect=0)
    store.delete(key("b"))
    store.close()

    again = Store(journal=Journal(path))
    assert again.revision == 4
    with pytest.raises(Expired):
        again.watch(CONFIGMAPS, since=3)
    assert again.watch(CONFIGMAPS, since=4).pending == 0
    record = again.get(key("a"))
    assert record is not None
    assert (record.revision, record.object["data"]) == (2, {"x": "2"})
    assert again.get(key("b")) is None
    assert again.put(key("c"), config_map("c"), expect=0).revision == 5
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


@pytest.mark.parametrize(
    "torn", [b"{", b'{"crc":"0011aaff","revision":9,"key":["","configmaps","default","z"]', b"\0" * 9]
)
def test_a_torn_tail_is_kept_aside_and_told(path: Path, torn: bytes) -> None:
    store = Store(journal=Journal(path))
    store.put(key("a"), config_map("a"), expect=0)
    store.close()
    path.write_bytes(path.read_bytes() + torn)
    journal = Journal(path)
    again = Store(journal=journal)
    assert journal.torn is not None
    assert journal.torn.name.startswith("journal.torn-")
    assert journal.torn.read_bytes() == torn
    assert stat.S_IMODE(journal.torn.stat().st_mode) == 0o600
    assert again.revision == 1
    assert again.get(key("a")) is not None
    again.put(key("b"), config_map("b"), expect=0)
    again.close()
    journal = Journal(path)
    third = Store(journal=journal)
    assert third.get(key("b")) is not None
    assert journal.torn is None, "it is told once"
    third.close()


DAMAGES = [b"garbage\n", b'{"revision":"x"}\n', b'{"revision":3,"key":["a"]}\n', b"[]\n", b"\n"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_middle_is_reported_with_its_line(path: Path, damage: bytes) -> None:
    store = Store(journal=Journal(path))
    store.put(key("a"), config_map("a"), expect=0)
    store.close()
    header, _, rest = path.read_bytes().partition(b"\n")
    damaged = header + b"\n" + damage + rest
    path.write_bytes(damaged)
    with pytest.raises(JournalError, match="is damaged: line 2 is not as it was written"):
        opened(path)
    assert path.read_bytes() == damaged, "opening changes nothing of it"


@pytest.mark.parametrize("content", [b"", b'{"crc":"', b"\0" * 100])
def test_an_empty_file_is_not_an_empty_cluster(path: Path, content: bytes) -> None:
    Store(journal=Journal(path)).close()
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"it was cut off|line 1 is not the header of a journal"):
        opened(path)
    assert path.read_bytes() == content


def written(path: Path) -> list[dict[str, Any]]:
    """Write a small journal whose lines are objects and later writes; returns the state after each of these."""
    store = Store(journal=Journal(path))
    for name in "abc":
        store.put(key(name), config_map(name, x="1"), expect=0)
    store.close()
    store = Store(journal=Journal(path))
    states = [state_of(store)]
    changes: list[Callable[[], object]] = [
        lambda: store.put(key("a"), config_map("a", x="2"), expect=None),
        lambda: store.delete(key("b")),
        lambda: store.put(key("d"), config_map("d", x="\u00e9"), expect=0),
    ]
    for change in changes:
        change()
        states.append(state_of(store))
    store.close()
    return states


def state_of(store: Store) -> dict[str, Any]:
    return {record.metadata["name"]: record.object for record in store.list(CONFIGMAPS)}


def opened(path: Path) -> Store:
    journal = Journal(path)
    try:
        return Store(journal=journal)
    except JournalError:
        journal.close()
        raise


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: thousands of files take minutes on one that others use."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.usefixtures("unsynced")
def test_cut_off_at_any_byte_it_loses_only_what_it_says(path: Path) -> None:
    """Every prefix is a past state or is refused; a write that is there in part is kept aside."""
    states = written(path)
    content = path.read_bytes()
    snapshot = sum(map(len, content.splitlines(keepends=True)[:4]))
    for length in range(len(content)):
        path.write_bytes(content[:length])
        whole = content[:length].count(b"\n") - 4
        if length < snapshot:
            with pytest.raises(JournalError):
                opened(path)
            continue
        journal = Journal(path)
        store = Store(journal=journal)
        assert state_of(store) == states[whole]
        assert (journal.torn is None) == content[:length].endswith(b"\n")
        store.close()


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("flip", [0x01, 0x20, 0xFF])
def test_damaged_at_any_byte_it_is_refused(path: Path, flip: int) -> None:
    """Only damage to the last newline looks like a write that did not end: all of that line is kept aside."""
    states = written(path)
    content = path.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= flip
        path.write_bytes(damaged)
        if position == len(content) - 1:
            journal = Journal(path)
            store = Store(journal=journal)
            assert journal.torn is not None
            assert state_of(store) == states[-2]
            store.close()
        else:
            with pytest.raises(JournalError, match="damaged"):
                opened(path)


def test_missing_lines_are_damage(path: Path) -> None:
    written(path)
    lines = path.read_bytes().splitlines(keepends=True)
    for missing in range(len(lines) - 1):  # without the last one it is an earlier state, which nothing tells
        path.write_bytes(b"".join(line for number, line in enumerate(lines) if number != missing))
        with pytest.raises(JournalError, match="is damaged"):
            opened(path)


def test_a_newer_format_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"format":99,"revision":0}\n')
    journal = Journal(path)
    with pytest.raises(JournalError, match="in format 99, and this version reads format 2"):
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
    with pytest.raises(StatusError, match="No space left") as caught:
        store.put(key("b"), config_map("b"), expect=0)
    assert (caught.value.code, caught.value.reason) == (507, "InsufficientStorage")
    assert str(path) in caught.value.message
    assert store.check() is not None
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert store.check() is None, "there is space again, although nobody wrote"
    assert path.read_bytes() == before
    assert store.get(key("b")) is None
    assert store.revision == 1
    store.put(key("b"), config_map("b"), expect=0)
    store.close()


def test_what_a_failed_write_left_is_cut_off_before_the_next_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may refuse both the write and the repair of what it left."""
    store = Store(journal=Journal(path))
    store.put(key("a"), config_map("a"), expect=0)
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) > 20:
            return write(descriptor, bytes(data[:20]))
        raise OSError(errno.EIO, "Input/output error")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "write", half)
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(StatusError, match="Input/output error") as caught:
        store.put(key("b"), config_map("b"), expect=0)
    assert caught.value.code == 500
    monkeypatch.undo()
    store.put(key("c"), config_map("c"), expect=0)
    store.close()
    assert set(state_of(opened(path))) == {"a", "c"}


SLACK = 64 * 1024


def test_a_journal_never_takes_more_than_twice_its_live_lines_and_the_slack(path: Path) -> None:
    store = Store(journal=Journal(path, slack=SLACK))
    sizes: dict[str, int] = {}
    chooser = random.Random(7)
    for number in range(4_000):
        name = f"cm-{chooser.randrange(40)}"
        if name in sizes and chooser.random() < 0.2:
            store.delete(key(name))
            del sizes[name]
        else:
            record = store.put(key(name), config_map(name, x="y" * chooser.randrange(4_000)), expect=None)
            sizes[name] = len(record.json)
        # A line has at most this much more than its object.
        assert path.stat().st_size <= 2 * sum(size + 200 for size in sizes.values()) + SLACK, number
    expected, revision = state_of(store), store.revision
    store.close()
    assert not path.with_name("journal.new").exists()
    again = opened(path)
    assert (state_of(again), again.revision) == (expected, revision)
    again.close()


def test_a_compaction_that_fails_costs_nothing_but_space(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(journal=Journal(path, slack=SLACK))
    monkeypatch.setattr(os, "fsync", _no_space)
    for number in range(200):
        store.put(key("a"), config_map("a", x="y" * 4_000, number=str(number)), expect=None)
    assert path.stat().st_size > 4 * SLACK
    assert not path.with_name("journal.new").exists()
    monkeypatch.undo()
    for number in range(200):
        store.put(key("a"), config_map("a", x="y" * 4_000, number=str(number)), expect=None)
    assert path.stat().st_size <= 2 * SLACK
    expected = state_of(store)
    store.close()
    assert state_of(opened(path)) == expected


def _no_space(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


_WRITER = """
import sys
from pathlib import Path
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.apiserver.storage import Journal, ObjectKey, Store
store = Store(journal=Journal(Path(sys.argv[1]), slack=20_000))
number = 0
while True:
    number += 1
    name = f"cm-{number}"
    store.put(ObjectKey(CONFIGMAPS, "default", name), {"metadata": {"name": name, "namespace": "default"}}, expect=0)
    for _ in range(3):
        churn = {"metadata": {"name": "churn", "namespace": "default"}, "data": {"x": "y" * 900, "last": name}}
        store.put(ObjectKey(CONFIGMAPS, "default", "churn"), churn, expect=None)
    print(number, flush=True)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("after", [3, 57, 200, 331])
def test_a_killed_process_loses_nothing_that_it_acknowledged(path: Path, after: int) -> None:
    """Its journal is compacted again and again meanwhile."""
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= after:
                break
        process.send_signal(signal.SIGKILL)
        acknowledged = [line.strip() for line in process.stdout.readlines()]
    newest = max([after, *(int(number) for number in acknowledged if number.isdigit())])
    store = Store(journal=Journal(path))
    assert all(store.get(key(f"cm-{number}")) is not None for number in range(1, newest + 1))
    churn = store.get(key("churn"))
    assert churn is not None
    assert int(churn.object["data"]["last"].removeprefix("cm-")) >= newest
    store.close()
