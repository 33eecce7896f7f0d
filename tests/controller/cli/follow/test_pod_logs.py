"""Logs of pods: cut into lines, and followed, each line delivered once whatever breaks."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import cast

from trainmaster.controller.cli.follow.pod_logs import EVERYTHING, KEPT_LINES, LogLines, LogOptions, PodLog, last_lines
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    BadRequest,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    StreamBroken,
)
from trainmaster.runtime.jsontree import JsonObject

STAMP = "2026-01-01T00:00:00.123456789Z"


def cut(*chunks: bytes) -> list[str]:
    found: list[str] = []
    lines = LogLines(found.extend)
    for chunk in chunks:
        lines.feed(chunk)
    lines.close()
    return found


def test_what_arrives_at_once_is_delivered_at_once() -> None:
    batches: list[list[str]] = []
    lines = LogLines(batches.append)
    lines.feed(f"{STAMP} one\n{STAMP} two\n{STAMP} th".encode())
    lines.feed(b"ree\n")
    assert batches == [["one", "two"], ["three"]]


def test_lines_without_end_come_in_pieces_and_what_the_server_puts_in_between_whole() -> None:
    stamp = STAMP.encode()
    found = cut(stamp + b" " + b"x" * 70_000, b"y\n", stamp + b" \xff\r\n", stamp + b" \n")
    assert found == ["x" * 70_000, "y", "\N{REPLACEMENT CHARACTER}", ""]
    assert cut(f"{STAMP} one\nfailed to watch the file\n".encode()) == ["one", "failed to watch the file"]


def test_the_last_line_is_shown_as_it_grows_also_after_the_log_was_opened_again() -> None:
    """A log is opened again as a matter of course, and a bar may take hours until a line ends."""
    shown: list[str] = []
    found: list[str] = []
    lines = LogLines(found.extend, shown.append)
    for chunk in (f"{STAMP} one\n{STAMP} \r10%", "\r55%"):
        lines.feed(chunk.encode())
    lines.reopen()
    for chunk in (f"{STAMP} o", f"ne\n{STAMP} \r10%\r55%\r70%", f"\r100%\n{STAMP} two\n"):
        lines.feed(chunk.encode())
    assert shown == ["\r10%", "\r10%\r55%", "", "\r10%\r55%\r70%", ""]
    assert found == ["one", "\r10%\r55%\r70%\r100%", "two"]


def test_of_a_bar_that_is_drawn_for_hours_the_last_state_is_delivered() -> None:
    chunks = [f"{STAMP} one\n{STAMP} ".encode(), *[b"\r 50% done"] * 20_000, b"\r100%\n"]
    one, bar = cut(*chunks)
    assert one == "one"
    assert len(bar) < 70_000
    assert bar.endswith("\r 50% done\r100%")


def test_times_are_compared_however_they_are_written() -> None:
    times = ("2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.12Z", "2026-01-01T00:00:00.2Z")
    elsewhere = ("2026-01-01T02:00:00.100+02:00", "2026-01-01T02:00:00.120+02:00", "2026-01-01T02:00:00.200+02:00")
    for again in (times, elsewhere):
        found: list[str] = []
        lines = LogLines(found.extend)
        lines.feed(b"2026-01-01T00:00:00.100000000Z one\n2026-01-01T00:00:00.120000000Z two\n")
        assert lines.since == "2026-01-01T00:00:00Z"
        lines.reopen()
        for time, text in zip(again, ("one", "two", "three"), strict=True):
            lines.feed(f"{time} {text}\n".encode())
        assert found == ["one", "two", "three"]


def test_lines_before_those_that_were_asked_for_stay_out() -> None:
    """A runtime reads several lines at once, so that those before the end may be of the same time."""
    found: list[str] = []
    lines = LogLines(found.extend, is_tail=True)
    lines.feed(f"{STAMP} two\n{STAMP} three\n".encode())
    lines.reopen()
    lines.feed(f"{STAMP} one\n{STAMP} two\n{STAMP} three\n2026-01-01T00:00:01Z four\n".encode())
    assert found == ["two", "three", "four"]


def test_a_log_may_break_off_anywhere() -> None:
    """Also within a time, before the log is opened again and after."""
    log = f"{STAMP} one\n{STAMP} unfinished\n".encode()
    first = len(f"{STAMP} one\n")
    for length in range(1, len(STAMP) + 12):
        found: list[str] = []
        shown: list[str] = []
        lines = LogLines(found.extend, shown.append)
        for _ in range(2):
            lines.feed(log[: first + length])
            lines.reopen()
        assert found == ["one"]
        assert not any(text.startswith("2026") for text in shown)
        lines.close()
        assert found[1:] == (["unfinished"[: length - len(STAMP) - 1]] if length > len(STAMP) else [])


def test_a_long_line_counts_once_when_it_comes_again() -> None:
    found: list[str] = []
    lines = LogLines(found.extend)
    long = f"{STAMP} {'x' * 70_000}".encode()
    lines.feed(long)
    lines.feed(b"y\n")
    lines.reopen()
    lines.feed(long + b"y\n" + f"{STAMP} next\n".encode())
    assert [line[-10:] for line in found] == ["x" * 10, "y", "next"]


def test_the_end_is_kept_within_bounds() -> None:
    lines = LogLines()
    lines.feed("".join(f"{STAMP} {number} {'x' * 5000}\n" for number in range(3 * KEPT_LINES)).encode())
    kept = lines.between("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
    assert [int(line.partition(" ")[0]) for line in kept] == list(range(2 * KEPT_LINES, 3 * KEPT_LINES))
    assert sum(map(len, kept)) <= 2000 * KEPT_LINES
    assert lines.between("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z") == []


def pod(run: int | None = 0, *, phase: str = "Running") -> JsonObject:
    """A pod that says this of its container."""
    state: JsonObject = {} if run is None else {"terminated": {}} if phase == "Succeeded" else {"running": {}}
    status = {"name": "node", "restartCount": run or 0, "state": state}
    return {"metadata": {"name": "p"}, "status": {"phase": phase, "containerStatuses": [status]}}


RUNNING, ENDED = pod(), pod(phase="Succeeded")
BACKING_OFF = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}}


class Script:
    """A client whose streams were written down before; an exception in a stream is raised.

    With each stream the pod whose log is followed comes to its next state.
    """

    def __init__(self, *streams: list[bytes | KubeError], at_first: bytes = b"") -> None:
        self.streams = list(streams)
        self.at_first = at_first
        self.asked: list[dict[str, str]] = []
        self.next_state: Callable[[], None] = lambda: None

    async def raw(self, *_: str, params: Mapping[str, str], accept: str) -> tuple[int, None, bytes]:
        assert (params["timestamps"], accept) == ("true", "*/*")
        return (200 if self.at_first else 404), None, self.at_first

    @asynccontextmanager
    async def stream(self, _path: str, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked.append(dict(params))
        self.next_state()
        parts = self.streams.pop(0)
        if parts and isinstance(parts[0], KubeError):
            raise parts[0]

        async def chunks() -> AsyncIterator[bytes]:
            for part in parts:
                if isinstance(part, Exception):
                    raise part
                yield part

        yield chunks()


def lines(*texts: str, second: int = 0) -> bytes:
    return "".join(f"2026-01-01T00:00:{second:02}.{text[0] * 9}Z {text[1:]}\n" for text in texts).encode()


def log_of(
    script: Script, *states: JsonObject, to: list[str], with_times: bool = False, options: LogOptions = EVERYTHING
) -> PodLog:
    """The log of a pod that comes to these states, one after the other."""
    cut = LogLines(to.extend, with_times=with_times)
    log = PodLog(cast("KubeClient", script), namespace="default", pod="p", container="node", lines=cut, options=options)
    left = list(states)

    def next_state() -> None:
        log.observe(left.pop(0) if len(left) > 1 else left[0])

    script.next_state = next_state
    next_state()
    return log


async def follow(script: Script, *states: JsonObject) -> list[str]:
    delivered: list[str] = []
    await log_of(script, *states, to=delivered).follow()
    assert not script.streams
    return delivered


async def test_a_broken_stream_goes_on_where_it_stopped() -> None:
    """Lines of the last second come again, and of one moment there may be several: none is told twice."""
    script = Script(
        [lines("1one", "2two", "2three")[:-3], StreamBroken("gone")],
        [ServerError(status=503)],
        [lines("1one", "2two", "2three"), lines("2four", "3five"), StreamBroken("gone")],
        [lines("1one", "2two", "2three", "2four", "3five", "4six")],
    )
    assert await follow(script, RUNNING, RUNNING, RUNNING, ENDED) == ["one", "two", "three", "four", "five", "six"]
    assert [each.get("sinceTime") for each in script.asked] == [None, *["2026-01-01T00:00:00Z"] * 3]


async def test_the_log_of_another_run_is_no_continuation() -> None:
    """While the connection was away, the container was restarted: the rest of the old log comes first, then the new."""
    restarted, ended = pod(1), pod(1, phase="Succeeded")
    script = Script(
        [lines("1one", "2two"), StreamBroken("gone")],
        [lines("1one", "2two", "3three")],
        [lines("1one", "2four", second=9)],
        [lines("1one", "2four", second=9)],
    )
    assert await follow(script, RUNNING, restarted, restarted, ended) == ["one", "two", "three", "one", "four"]
    assert [each.get("previous") for each in script.asked] == [None, "true", None, None]


async def test_a_container_that_waits_for_its_next_start_has_the_log_of_its_last_run() -> None:
    """Of a job that has ended, what there is is read once, with the times that were asked for."""
    ended = pod(2, phase="Failed")
    ended["status"]["containerStatuses"][0] |= BACKING_OFF
    delivered: list[str] = []
    script = Script([lines("1one")])
    await log_of(script, ended, to=delivered, with_times=True, options=LogOptions(since_seconds=60)).follow()
    assert delivered == ["2026-01-01T00:00:00.111111111Z one"]
    assert [(each["sinceSeconds"], each["follow"]) for each in script.asked] == [("60", "true")]


async def test_what_is_there_already_is_read_before_a_stream_is_opened() -> None:
    # What is there already is read before a stream is opened. The pod may be deleted by then.
    script = Script([NotFound(status=404)], at_first=lines("1one", "2two"))
    assert await follow(script, RUNNING) == ["one", "two"]
    script = Script([lines("1one", "2two", "3three")], at_first=lines("1one", "2two")[:-2])
    assert await follow(script, ENDED) == ["one", "two", "three"]
    # A log that may not be read is no end without a word.
    log = log_of(Script([Forbidden(status=403, message="you may not")]), RUNNING, to=[])
    await log.follow()
    assert "you may not" in str(log.refusal)


async def test_an_unfinished_line_is_delivered_once_at_the_end() -> None:
    script = Script([lines("1one", "2two")[:-1]], [lines("1one", "2two")[:-1]])
    assert await follow(script, RUNNING, ENDED) == ["one", "two"]
    # An unfinished line is delivered when the pod is gone.
    script = Script([lines("1half a line")[:-1], StreamBroken("gone")], [NotFound(status=404)])
    assert await follow(script, RUNNING) == ["half a line"]
    # A log that is not there yet is waited for.
    script = Script([BadRequest(status=400)], [lines("1one")])
    assert await follow(script, RUNNING, ENDED) == ["one"]


async def test_last_lines_are_those_of_one_run() -> None:
    """By the time it is asked for, the log before may be that of a later run."""
    log = lines("1old", second=1) + lines("1late", "2later", second=5) + lines("1new", second=8)
    of = {"namespace": "default", "pod": "p", "container": "node"}
    since, until = "2026-01-01T00:00:04Z", "2026-01-01T00:00:06Z"
    client = cast("KubeClient", Script(at_first=log))
    assert await last_lines(client, **of, previous=True, since=since, until=until) == ["late", "later"]
