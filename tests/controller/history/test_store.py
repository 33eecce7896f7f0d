"""The store, on SQLite and on a server of PostgreSQL: one row for each job, whatever happens."""

import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.disk import full_disk
from support.history import NOON, NewStore, at, record, running
from support.postgres import Postgres

from trainmaster.controller.history.postgres import postgres_store
from trainmaster.controller.history.query import Query, read_query
from trainmaster.controller.history.record import LONGEST_RECORD, JobRecord, Sample, TimelineEntry, bounded
from trainmaster.controller.history.sqlite import sqlite_store
from trainmaster.controller.history.store import HistoryStore, HistoryUnavailable


def found(store: HistoryStore, **query: object) -> list[str]:
    records, _ = store.find(Query(**query))  # type: ignore[arg-type] # whatever the test asks
    return [each.name for each in records]


def test_what_is_written_another_process_reads(new_store: NewStore) -> None:
    whole = record(1, message='it\'s "quoted"; DROP TABLE trainmaster_history; -- ü % ? 𝄞', cause="OutOfMemory")
    assert new_store().write([whole], now=NOON) == 1
    assert new_store().find(Query()) == ([whole], None)
    assert new_store().get(whole.uid) == whole
    assert new_store().get("another") is None


def test_what_is_written_again_is_there_once_and_counts_as_unchanged(new_store: NewStore) -> None:
    first, second = new_store(), new_store()
    assert first.write([record(1), record(2)], now=NOON) == 2
    assert second.write([record(1), record(2), record(3)], now=NOON) == 1
    assert found(first) == ["job-3", "job-2", "job-1"]


def test_two_writers_at_once_lose_nothing(new_store: NewStore) -> None:
    stores = [new_store(), new_store()]
    stores[0].write([], now=NOON)

    def write(store: HistoryStore, restarts: int) -> None:
        for number in range(30):
            store.write([record(number, restarts=restarts), running(99, restarts=number)], now=NOON)

    threads = [threading.Thread(target=write, args=each) for each in zip(stores, (1, 2), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records, _ = stores[0].find(Query(limit=100))
    assert [each.restarts for each in records] == [2] * 30
    assert (last := stores[0].get("uid-0099")) is not None
    assert last.restarts == 29


def test_the_longest_record_has_bounds_whatever_it_is_made_of(store: HistoryStore) -> None:
    for letter in ("a", '"', "\x01", "𝄞"):
        long = [f"{number:03}{letter * 999}" for number in range(99)]
        longest = record(
            1,
            uid=f"uid-{ord(letter)}",
            **dict.fromkeys(("name", "runtime", "message"), letter * 9999),
            accelerators=dict.fromkeys(long, 1),
            samples=[Sample(at(minute), 1, dict(zip(long, long, strict=True))) for minute in range(59)],
            timeline=[TimelineEntry(at(minute), long[minute], long[minute]) for minute in range(59)],
        )
        for _ in range(2):
            store.write([bounded(longest)], now=NOON)
        with store._reading() as execute:
            texts = execute("SELECT record FROM trainmaster_history").fetchall()
        assert max(len(text.encode()) for (text,) in texts) <= LONGEST_RECORD
        kept = store.get(longest.uid)
        assert kept is not None
        assert kept.samples[-1].time == at(58), "the last that it reported"
        assert kept.timeline[-1].time == at(58)


def test_jobs_are_found_by_what_they_are_the_last_end_first(store: HistoryStore) -> None:
    store.write(
        [
            record(1),
            record(2, namespace="team-b", result="Failed", cause="OutOfMemory"),
            record(3, runtime="jax", result="Deleted", cause="Unschedulable"),
            running(4),
        ],
        now=NOON,
    )
    assert found(store) == ["job-3", "job-2", "job-1"]
    assert found(store, namespaces=["team-b"]) == ["job-2"]
    assert found(store, namespaces=["team-a", "team-b", "none"]) == ["job-3", "job-2", "job-1"]
    assert found(store, namespaces=[]) == []
    assert found(store, runtime="jax") == ["job-3"]
    assert found(store, result="Failed") == ["job-2"]
    assert found(store, cause="Unschedulable") == ["job-3"]
    assert found(store, name="job-1", namespaces=["team-a"]) == ["job-1"]
    assert found(store, since=read_query({"since": at(2)}, now=NOON).since) == ["job-3", "job-2"]
    assert store.namespaces() == ["team-a", "team-b"]


def test_a_long_list_comes_in_pages_without_a_job_twice(store: HistoryStore) -> None:
    store.write([record(number, ended=at(number // 3)) for number in range(10)], now=NOON)
    pages, after = list[list[str]](), None
    while True:
        records, after = store.find(Query(limit=4, after=after))
        pages.append([each.uid for each in records])
        if after is None:
            break
    assert [len(page) for page in pages] == [4, 4, 2]
    assert sorted({uid for page in pages for uid in page}) == [f"uid-{number:04}" for number in range(10)]


def test_what_is_too_much_or_too_old_is_removed_and_nothing_else(store: HistoryStore) -> None:
    store.write([record(number) for number in range(10)], now=NOON)
    store.write([running(50)], now=NOON)
    assert store.prune(most=4, before=NOON - timedelta(days=1)) == 6
    assert found(store) == ["job-9", "job-8", "job-7", "job-6"]
    assert store.prune(most=4, before=NOON - timedelta(minutes=52)) == 2
    assert found(store) == ["job-9", "job-8"]
    assert store.get("uid-0050") is not None
    assert store.prune(most=4, before=NOON + timedelta(seconds=1)) == 3


def test_a_namespace_with_many_jobs_pushes_no_job_of_others_out(store: HistoryStore) -> None:
    store.write([record(number, namespace="few") for number in range(2)], now=NOON)
    store.write([record(number, namespace="some") for number in range(10, 14)], now=NOON)
    store.write([record(number, namespace="mallory") for number in range(20, 50)], now=NOON)
    assert store.prune(most=9, before=NOON - timedelta(days=1)) == 27
    kept = ["job-49", "job-48", "job-47", "job-46", "job-13", "job-12", "job-11", "job-1", "job-0"]
    assert found(store) == kept
    assert store.prune(most=9, before=NOON - timedelta(days=1)) == 0


def test_a_new_file_is_read_by_nobody_else(tmp_path: Path) -> None:
    with closing(sqlite_store(tmp_path / "h")) as store:
        store.write([record(1)], now=NOON)
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"h": 0o600, "h-wal": 0o600, "h-shm": 0o600}


def test_jobs_that_are_gone_have_ended_the_others_have_not(store: HistoryStore) -> None:
    store.write([running(1, cause="Unschedulable"), running(2), running(3, kind="PyTorchJob")], now=NOON)
    later = NOON + timedelta(minutes=1)
    store.write([running(4), running(5, namespace="team-b")], now=later)
    assert store.end_missing(live={"uid-0002"}, kind="TrainJob", namespaces=(), now=later) == 1
    assert store.end_missing(live={"uid-0002"}, kind="TrainJob", namespaces=(), now=later) == 0
    (ended,) = store.find(Query())[0]
    assert (ended.name, ended.result, ended.ended) == ("job-1", "Deleted", "2026-01-31T12:01:00Z")
    assert ended.cause == "Unschedulable"
    assert "deleted while nobody recorded it" in ended.message
    much_later = later + timedelta(minutes=1)
    assert store.end_missing(live=(), kind="TrainJob", namespaces=["team-b"], now=much_later) == 1
    assert found(store, namespaces=["team-b"]) == ["job-5"]


def test_an_end_that_cannot_be_read_as_a_time_is_now(store: HistoryStore) -> None:
    store.write([record(1, ended="yesterday"), record(2, ended="9999-99-99T00:00:00Z"), record(3)], now=NOON)
    assert sorted(found(store, since=NOON)) == ["job-1", "job-2"]


def test_what_somebody_else_wrote_into_the_table_counts_as_missing(store: HistoryStore) -> None:
    store.write([record(1), record(2)], now=NOON)
    with store._transaction() as execute:
        execute("UPDATE trainmaster_history SET record = ? WHERE uid = ?", ("no JSON", "uid-0001"))
    assert found(store) == ["job-2"]
    assert store.get("uid-0001") is None
    assert store.write([record(1)], now=NOON) == 1
    assert found(store) == ["job-2", "job-1"]


def test_a_schema_of_a_later_version_is_left_alone_and_told_of(store: HistoryStore, new_store: NewStore) -> None:
    store.write([record(1)], now=NOON)
    with store._transaction() as execute:
        execute("UPDATE trainmaster_history_schema SET version = 99")
    with pytest.raises(HistoryUnavailable, match=r"by a later version of Trainmaster \(schema 99, this one knows 1\)"):
        new_store().write([record(2)], now=NOON)


def test_a_transaction_that_fails_writes_nothing_and_the_next_one_works(store: HistoryStore) -> None:
    store.write([], now=NOON)

    def records() -> object:
        yield record(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write(records(), now=NOON)  # type: ignore[arg-type] # a generator that is interrupted
    assert found(store) == []
    assert store.write([record(2)], now=NOON) == 1


def problem(store: HistoryStore, wanted: JobRecord | None = None) -> str:
    with pytest.raises(HistoryUnavailable) as caught:
        store.write([wanted or record(1)], now=NOON)
    return str(caught.value)


def test_a_file_that_is_damaged_is_left_as_it_is_and_told_of(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    file.write_bytes(b"no database at all " * 1000)
    told = problem(sqlite_store(file))
    assert told.startswith(f"the history in {file} cannot be used: file is not a database; move the file away")
    assert file.read_bytes() == b"no database at all " * 1000
    # So is one with damaged pages.
    file = tmp_path / "damaged.sqlite"
    store = sqlite_store(file)
    store.write([record(number, message="x" * 2000) for number in range(100)], now=NOON)
    store.close()
    whole = bytearray(file.read_bytes())
    whole[4096:] = b"\xff" * len(whole[4096:])
    file.write_bytes(whole)
    assert "move the file away" in problem(sqlite_store(file))


def test_a_file_that_is_moved_away_is_used_by_nobody_any_more(tmp_path: Path) -> None:
    writer, reader = sqlite_store(tmp_path / "h"), sqlite_store(tmp_path / "h")
    writer.write([record(1)], now=NOON)
    assert found(reader) == ["job-1"]
    (tmp_path / "away").mkdir()
    for file in tmp_path.glob("h*"):
        file.rename(tmp_path / "away" / file.name)
    assert found(reader) == [], "who reads first begins a new one"
    writer.write([record(2)], now=NOON)
    assert found(reader) == ["job-2"]
    assert found(sqlite_store(tmp_path / "away/h")) == ["job-1"]


def test_two_that_open_a_new_file_at_once_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer and the reader of a manager do; SQLite refuses one of them at once."""
    other = sqlite3.connect(tmp_path / "h", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    refused: list[Exception] = []

    class Connection(sqlite3.Connection):
        def execute(self, *statement: Any) -> sqlite3.Cursor:
            try:
                return super().execute(*statement)
            except sqlite3.OperationalError as error:
                refused.append(error)
                other.close()
                raise

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
    assert sqlite_store(tmp_path / "h").write([record(1)], now=NOON) == 1
    assert [str(each) for each in refused] == ["database is locked"]


def test_a_place_that_takes_no_file_is_told_of(tmp_path: Path) -> None:
    for place in ("/proc/history.sqlite", "/nowhere/at/all/history.sqlite", str(tmp_path)):
        told = problem(sqlite_store(Path(place)))
        assert told.startswith(f"the history in {place} cannot be used: unable to open database file; make")


def test_a_disk_that_is_full_costs_what_is_written_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    store = sqlite_store(file)
    store.write([record(1)], now=NOON)
    size = max(each.stat().st_size for each in tmp_path.iterdir())
    with full_disk(room=size):
        told = problem(store, record(2, message="x" * 2000))
    assert "make room there" in told
    assert store.write([record(3)], now=NOON) == 1
    assert found(sqlite_store(file)) == ["job-3", "job-1"]


@pytest.mark.nightly
def test_a_database_that_goes_away_is_used_again_when_it_is_back(postgres: Postgres, tmp_path: Path) -> None:
    postgres.new_database(tmp_path / "url")
    store = postgres_store(tmp_path / "url")
    store.write([record(1)], now=NOON)
    postgres.stop()
    try:
        told = problem(store, record(2))
    finally:
        postgres.start()
    assert told.startswith(f"the history in the database of {tmp_path / 'url'} cannot be used: ")
    store.write([record(2)], now=NOON)
    assert found(store) == ["job-2", "job-1"]
    store.close()


@pytest.mark.nightly
def test_options_of_the_url_hold(postgres: Postgres, tmp_path: Path) -> None:
    """By them installations have schemas of their own in one database."""
    postgres.new_database(tmp_path / "url")
    store = postgres_store(tmp_path / "url")
    with store._reading() as execute:
        execute("CREATE SCHEMA trainer")
    url = (tmp_path / "url").read_text().strip()
    (tmp_path / "of-the-schema").write_text(f"{url}&options=-csearch_path%3Dtrainer")
    other = postgres_store(tmp_path / "of-the-schema")
    other.write([record(1)], now=NOON)
    assert found(store) == []
    assert found(other) == ["job-1"]
    with other._reading() as execute:
        assert execute("SHOW statement_timeout").fetchone() == ("30s",)
    store.close()
    other.close()


def test_a_file_without_a_good_url_is_told_of_and_no_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    file = tmp_path / "url"
    for content in (None, "", "no URL at all"):
        if content is not None:
            file.write_text(content)
        assert str(file) in problem(postgres_store(file))
    file.write_text("postgresql://somebody:s3cret-word@127.0.0.1:1/history")
    told = problem(postgres_store(file))
    assert "s3cret-word" not in told
    assert "it goes on by itself" in told


def test_a_killed_process_leaves_whole_transactions(tmp_path: Path) -> None:
    """What is not committed is not there; what is stays, although nobody has closed anything."""
    file = tmp_path / "history.sqlite"
    sqlite_store(file).write([record(1)], now=NOON)
    left = tmp_path / "left"
    left.mkdir()
    half = sqlite3.connect(file, isolation_level=None)
    half.execute("BEGIN IMMEDIATE")
    half.execute("DELETE FROM trainmaster_history")
    for each in (*tmp_path.glob("history.sqlite*"),):
        (left / each.name).write_bytes(each.read_bytes())
    half.close()
    assert found(sqlite_store(left / "history.sqlite")) == ["job-1"]
