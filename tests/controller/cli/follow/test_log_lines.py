"""Cutting logs into lines, with their times."""

from __future__ import annotations

from trainmaster.controller.cli.follow.log_lines import KEPT_LINES, LogLines

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
    assert cut(stamp + b" " + b"x" * 70_000, b"y\n", stamp + b" \xff\r\n", stamp + b" \n") == [
        "x" * 70_000,
        "y",
        "\N{REPLACEMENT CHARACTER}",
        "",
    ]
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
        lines.feed(
            "".join(f"{time} {text}\n" for time, text in zip(again, ("one", "two", "three"), strict=True)).encode()
        )
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
    for chunk in (long, b"y\n"):
        lines.feed(chunk)
    lines.reopen()
    lines.feed(long + b"y\n" + f"{STAMP} next\n".encode())
    assert [line[-10:] for line in found] == ["x" * 10, "y", "next"]


def test_the_end_is_kept_within_bounds() -> None:
    lines = LogLines()
    lines.feed("".join(f"{STAMP} {number} {'x' * 5000}\n" for number in range(3 * KEPT_LINES)).encode())
    kept = lines.between("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
    assert [line.partition(" ")[0] for line in kept] == [
        str(number) for number in range(2 * KEPT_LINES, 3 * KEPT_LINES)
    ]
    assert sum(map(len, kept)) <= 2000 * KEPT_LINES
    assert lines.between("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z") == []
