"""Records: their bounds, and what becomes of two of one job."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st
from support.history import at, record, running

from trainmaster.controller.history.record import (
    LONGEST_RECORD,
    JobRecord,
    Sample,
    TimelineEntry,
    bounded,
    gone,
    merged,
    read_record,
)


def test_a_record_is_read_back_as_it_was_written() -> None:
    whole = record(
        1,
        nodes=4,
        accelerators={"nvidia.com/gpu": 32},
        started=at(1),
        result="Failed",
        cause="OutOfMemory",
        message="rank 1 failed",
        exit_code=137,
        restarts=2,
        suspensions=1,
        samples=(Sample(at(2), 50, {"loss": "0.5"}),),
        timeline=(TimelineEntry(at(0), "Created"), TimelineEntry(at(3), "Failed", "rank 1 failed")),
    )
    assert read_record(orjson.loads(orjson.dumps(whole.to_json()))) == whole
    # A summary is read with the last numbers.
    found = read_record(record(samples=[Sample(at(1), 10), Sample(at(2), 90, {"loss": "0.1"})]).summary())
    assert [(each.percentage, each.metrics) for each in found.samples] == [(90, {"loss": "0.1"})]
    # What happened within a second is told before the end.
    events = ("Deleted", "Failed", "Started", "ContainerFailed")
    found = bounded(record(timeline=[TimelineEntry(at(1), event) for event in events]))
    assert [each.event for each in found.timeline] == ["Started", "ContainerFailed", "Failed", "Deleted"]


def test_whatever_a_job_writes_its_record_has_bounds() -> None:
    long = "ü" * 5_000
    hostile = bounded(
        record(
            name=long,
            runtime=long,
            message=long,
            accelerators={f"{long}{number}": 1 for number in range(100)},
            samples=[
                Sample(f"{number:06}", number, {f"{long}{name}": long for name in range(50)}) for number in range(100)
            ],
            timeline=[TimelineEntry(f"{number:06}", long, long) for number in range(100)],
        )
    )
    assert len(orjson.dumps(hostile.to_json())) <= LONGEST_RECORD


def test_the_end_of_a_job_is_the_first_one_that_was_seen() -> None:
    # The first end counts.
    first = record(1, result="Failed", message="first")
    assert merged(first, record(1, ended=at(9), result="Succeeded", message="later")).message == "first"
    assert merged(running(1), first).result == "Failed"
    assert merged(first, running(1)).result == "Failed"
    # What only seemed deleted has ended as it did.
    missing = gone(running(1), at=at(5), text="the job was deleted")
    assert (missing.result, missing.message) == ("Deleted", "the job was deleted before it had ended")
    assert merged(missing, record(1)).result == "Succeeded"
    assert merged(record(1), missing).result == "Succeeded"
    # A job that is deleted after its end keeps it.
    found = merged(record(1), gone(record(1), at=at(50), text="the job was deleted"))
    assert (found.result, found.ended, found.deleted, found.message) == ("Succeeded", at(1), at(50), "")
    assert [each.event for each in found.timeline] == ["Deleted"]
    # What is known of one and not of the other is known.
    before = running(nodes=4, started=at(2), user="ann", accelerators={"nvidia.com/gpu": 8}, restarts=3)
    found = merged(before, record(started=at(3)))
    assert (found.nodes, found.started, found.user, found.restarts) == (4, at(2), "ann", 3)
    assert found.accelerators == {"nvidia.com/gpu": 8}


def test_suspensions_count_once_and_what_no_store_takes_is_left_out() -> None:
    # Each suspension counts once.
    def suspended(*minutes: int) -> JobRecord:
        return running(
            suspensions=1,
            timeline=[TimelineEntry(at(0), "Created"), *(TimelineEntry(at(m), "Suspended") for m in minutes)],
        )

    once = suspended(1)
    twice = merged(merged(once, suspended(1)), suspended(5))
    assert merged(twice, suspended(5)).suspensions == 2
    # What no store takes and credentials are left out.
    found = bounded(record(message="a\0b \ud800 Bearer abcdefghijklmnopqrstuvwxyz0123"))
    assert found.message == "ab ? Bearer [redacted]"
    orjson.dumps(found.to_json())


RECORDS = st.builds(
    lambda ended, result, started, restarts, events, samples: record(
        ended=ended if result else "",
        result=result,
        started=started,
        restarts=restarts,
        timeline=[TimelineEntry(at(minute), event) for minute, event in events],
        samples=[Sample(at(minute), minute) for minute in samples],
    ),
    ended=st.integers(0, 30).map(at),
    result=st.sampled_from(["", "Succeeded", "Failed", "Deleted"]),
    started=st.one_of(st.just(""), st.integers(0, 30).map(at)),
    restarts=st.integers(0, 3),
    events=st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["Created", "Suspended", "Resumed"])), max_size=18),
    samples=st.lists(st.integers(0, 99), max_size=50),
)


@given(RECORDS, RECORDS)
def test_what_is_recorded_twice_is_there_once(one: JobRecord, other: JobRecord) -> None:
    once = merged(bounded(one), bounded(other))
    assert merged(once, bounded(other)).to_json() == {
        **once.to_json(),
        # Samples that were thinned out may come back for a moment; the numbers of the job do not change.
        "samples": merged(once, bounded(other)).to_json()["samples"],
        "timeline": merged(once, bounded(other)).to_json()["timeline"],
    }
    assert len(once.timeline) <= 40
    assert len(once.samples) <= 60
