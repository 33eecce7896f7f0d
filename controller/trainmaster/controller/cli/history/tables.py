"""Records as people read them: rows of a table, or all of one job; pure.

What programs wrote is shown without what a terminal would obey.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from trainmaster.controller.cli.jobs.rows import goodput_words
from trainmaster.controller.cli.output import plain
from trainmaster.controller.cli.printers import aligned, human_duration
from trainmaster.controller.history.record import JobRecord
from trainmaster.controller.kube.clock import parse_time

UNKNOWN: Final = "-"

HEADER: Final = ("KIND", "NAME", "STATE", "CAUSE", "RUNTIME", "ENDED", "DURATION")
WIDE_HEADER: Final = (*HEADER, "NODES", "ACCELERATORS", "RESTARTS", "EXIT", "DELETED", "USER")


def table(records: Sequence[JobRecord], *, now: datetime, namespaces: bool, wide: bool) -> list[str]:
    """Return the lines of the table."""
    header = WIDE_HEADER if wide else HEADER
    rows = [("NAMESPACE", *header) if namespaces else header]
    for record in records:
        cells = (
            record.kind,
            record.name,
            record.state,
            record.cause or UNKNOWN,
            record.runtime or UNKNOWN,
            ago(record.ended, now),
            duration(record),
            *(_more(record) if wide else ()),
        )
        shown = tuple(plain(cell) or UNKNOWN for cell in cells)
        rows.append((record.namespace, *shown) if namespaces else shown)
    return aligned(rows)


def _more(record: JobRecord) -> tuple[str, ...]:
    return (
        UNKNOWN if record.nodes is None else str(record.nodes),
        accelerators(record),
        str(record.restarts),
        UNKNOWN if record.exit_code is None else str(record.exit_code),
        "yes" if record.deleted else "no",
        record.user or UNKNOWN,
    )


def accelerators(record: JobRecord) -> str:
    """Write how many of which it asked for: `32 nvidia.com/gpu`."""
    return ", ".join(f"{number} {name}" for name, number in sorted(record.accelerators.items())) or UNKNOWN


def duration(record: JobRecord) -> str:
    """Write how long it took from its creation, or its last resumption; `-` if that is not known."""
    began, ended = _time(record.began), _time(record.ended)
    return UNKNOWN if began is None or ended is None else human_duration((ended - began).total_seconds())


def ago(text: str, now: datetime) -> str:
    """Write how long ago something was."""
    moment = _time(text)
    return UNKNOWN if moment is None else f"{human_duration((now - moment).total_seconds())} ago"


def _time(text: str) -> datetime | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def details(record: JobRecord) -> Iterator[str]:
    """Return all that is recorded of a job, as lines."""
    state = record.state or "not ended"
    of_cause = f" ({record.cause})" if record.cause else ""
    facts = {
        "Job": f"{record.kind} {record.namespace}/{record.name}",
        "UID": record.uid,
        "State": f"{state}{of_cause}",
        "Message": record.message,
        "Exit code": "" if record.exit_code is None else str(record.exit_code),
        "Runtime": record.runtime,
        "User": record.user,
        "Nodes": "" if record.nodes is None else str(record.nodes),
        "Accelerators": accelerators(record) if record.accelerators else "",
        "Created": record.created,
        "Started": record.started,
        "Ended": record.ended,
        "Duration": duration(record) if record.ended else "",
        "Goodput": goodput_words(record.goodput) if record.goodput else "",
        "Deleted": record.deleted,
        "Restarts": str(record.restarts),
        "Suspensions": str(record.suspensions) if record.suspensions else "",
        "Progress": _progress(record),
    }
    width = max(map(len, facts)) + 2
    for name, text in facts.items():
        lines = [plain(line) for line in text.splitlines()]
        for number, line in enumerate(lines):
            yield f"{f'{name}:' if number == 0 else '':<{width}}{line}"
    if record.timeline:
        yield ""
        yield "Timeline:"
        for entry in record.timeline:
            text = plain(" ".join(entry.text.split()))
            yield f"  {plain(entry.time)}  {plain(entry.event)}" + (f": {text}" if text else "")


def _progress(record: JobRecord) -> str:
    if not record.samples:
        return ""
    last = record.samples[-1]
    metrics = ", ".join(f"{name} {value}" for name, value in sorted(last.metrics.items()))
    percentage = "" if last.percentage is None else f"{last.percentage} %"
    at = f"(reported {last.time})" if last.time else ""
    return " ".join(filter(None, (", ".join(filter(None, (percentage, metrics))), at)))
