"""What the history keeps of one job; pure.

Guarantees:
- A record has bounds, whatever the job wrote; as it is stored, it has at most `LONGEST_RECORD` bytes.
- `merged` makes one record of two of the same job. Doing so twice changes nothing, so that whoever records a job again,
  after a restart or as another leader, adds what is new and nothing else. The first end counts.
- No credential is in it (M-11): texts come from programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, TypeVar

import orjson

from trainmaster.controller.explain.state import word_of_end
from trainmaster.controller.redaction import redact
from trainmaster.runtime.jsontree import JsonObject

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
DELETED: Final = "Deleted"
"""Results; the last one is that of a job which was deleted before it had ended."""

RESULTS: Final = (SUCCEEDED, FAILED, DELETED)
RESUMED: Final = "Resumed"
"""The event of a timeline with which a suspension ended."""

LONGEST_RECORD: Final = 64 * 1024
_LONGEST_MESSAGE: Final = 2000
_LONGEST_TEXT: Final = 300
_LONGEST_NAME: Final = 253
_LONGEST_TIME: Final = 40
_NAMES: Final = ("uid", "api_version", "kind", "namespace", "name", "runtime", "user")
_TIMES: Final = ("created", "started", "ended", "deleted")
_LARGEST: Final = 2**53 - 1
"""JSON has no larger whole number that everybody reads."""

_ENTRIES: Final = 40
_FIRST_ENTRIES: Final = 8
"""Of a timeline that is too long the beginning and the end are kept."""

T = TypeVar("T")

_LAST: Final = ("Complete", SUCCEEDED, FAILED, DELETED)
_SAMPLES: Final = 60
_METRICS: Final = 16
_ACCELERATORS: Final = 8


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that happened to a job."""

    time: str
    """RFC 3339."""

    event: str
    """What, in one word: `Created`, `Started`, the type of a condition."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a job reported of its progress at a moment."""

    time: str
    percentage: int | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Numbers by name, as they were reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job. Times are RFC 3339, and empty where they are not known or not yet there."""

    uid: str
    api_version: str
    kind: str
    namespace: str
    name: str
    runtime: str = ""
    """The name of the runtime of a TrainJob."""

    user: str = ""
    """Who submitted it, if an annotation of it says so."""

    nodes: int | None = None
    """How many it asked for; None if that is not known."""

    accelerators: Mapping[str, int] = field(default_factory=dict)
    """How many it asked for in all, by resource: `nvidia.com/gpu`."""

    created: str
    started: str = ""
    """When all of it was ready for the first time."""

    ended: str = ""
    deleted: str = ""
    result: str = ""
    """One of `RESULTS`; empty while it has not ended."""

    cause: str = ""
    """Of a failure, or of what stood in its way when it was deleted: a name of `explain.cause`."""

    message: str = ""
    exit_code: int | None = None
    restarts: int = 0
    suspensions: int = 0
    goodput: Mapping[str, int] = field(default_factory=dict)
    """What the time of a TrainJob was spent on, up to its end, as in its status: `productiveSeconds`."""

    samples: Sequence[Sample] = ()
    """By time; the last one is the last that it reported."""

    timeline: Sequence[TimelineEntry] = ()
    """By time."""

    @property
    def began(self) -> str:
        """Since when it might run: its creation, or the end of its last suspension."""
        return max([self.created, *(each.time for each in self.timeline if each.event == RESUMED)])

    @property
    def has_ended(self) -> bool:
        """Whether it is part of the history; until then it is kept for what only those see who watch it."""
        return bool(self.result)

    @property
    def state(self) -> str:
        """The word for its state, as everywhere; empty while it has not ended."""
        return word_of_end(self.kind, self.result)

    @property
    def is_final(self) -> bool:
        """Whether nothing that is told of it later changes how it ended."""
        return self.result in (SUCCEEDED, FAILED)

    def to_json(self) -> JsonObject:
        """Return it as it is stored and served."""
        whole = self.summary()
        whole["samples"] = [asdict(each) for each in self.samples]
        whole["timeline"] = [asdict(each) for each in self.timeline]
        return whole

    def summary(self) -> JsonObject:
        """Return it without what happened when."""
        last = self.samples[-1] if self.samples else None
        return {
            **{key: getattr(self, name) for name, key in _KEYS.items()},
            "accelerators": dict(self.accelerators),
            "goodput": dict(self.goodput),
            "progressPercentage": last.percentage if last is not None else None,
            "metrics": dict(last.metrics) if last is not None else {},
        }


def _key(name: str) -> str:
    """Return a name in camel case; pydantic has this too, and takes longer to import than `explain` may to start."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_KEYS: Final = {each.name: _key(each.name) for each in fields(JobRecord) if each.name not in ("samples", "timeline")}
"""How the fields of a record are called where it is stored and served, in their order."""


def read_record(tree: Any) -> JobRecord:
    """Read a record that was stored or served, by another version perhaps: what is missing is not known.

    Raises:
        ValueError: It is none.
    """
    try:
        known = {name: tree[key] for name, key in _KEYS.items() if key in tree}
        known |= {name: known.get(name) or {} for name in ("accelerators", "goodput")}
        return JobRecord(
            **{"api_version": "", "created": "", **known},
            samples=_read_samples(tree),
            timeline=tuple(
                TimelineEntry(each["time"], each["event"], each.get("text", "")) for each in tree.get("timeline") or ()
            ),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no record of a job: {error!r}") from error


def _read_samples(tree: Any) -> tuple[Sample, ...]:
    samples = tree.get("samples")
    if samples is None and (tree.get("progressPercentage") is not None or tree.get("metrics")):
        samples = [{"time": "", "percentage": tree.get("progressPercentage"), "metrics": tree.get("metrics")}]
    return tuple(Sample(each["time"], each.get("percentage"), each.get("metrics") or {}) for each in samples or ())


def bounded(record: JobRecord) -> JobRecord:
    """Return a record within its bounds, without credentials and without what no store takes."""
    names: dict[str, Any] = {each: _text(getattr(record, each), _LONGEST_NAME) for each in _NAMES}
    times: dict[str, Any] = {each: getattr(record, each)[:_LONGEST_TIME] for each in _TIMES}
    return replace(
        record,
        **names,
        **times,
        nodes=_number(record.nodes),
        exit_code=_number(record.exit_code),
        restarts=_clamped(record.restarts),
        suspensions=_clamped(record.suspensions),
        accelerators={
            _text(name, _LONGEST_NAME): _clamped(number)
            for name, number in sorted(record.accelerators.items())[:_ACCELERATORS]
        },
        goodput={name: _clamped(seconds) for name, seconds in record.goodput.items()},
        message=_text(record.message, _LONGEST_MESSAGE),
        samples=_thinned(
            [
                Sample(
                    each.time[:_LONGEST_TIME],
                    _number(each.percentage),
                    {_text(name, 64): _text(value, 64) for name, value in _first(each.metrics)},
                )
                for each in record.samples
            ]
        ),
        timeline=_shortened(
            [
                TimelineEntry(each.time[:_LONGEST_TIME], _text(each.event, 64), _text(each.text, _LONGEST_TEXT))
                for each in record.timeline
            ]
        ),
    )


def _number(number: int | None) -> int | None:
    return None if number is None else _clamped(number)


def _clamped(number: int) -> int:
    return max(-_LARGEST, min(number, _LARGEST))


def _first(metrics: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return sorted(metrics.items())[:_METRICS]


def _text(text: str, longest: int) -> str:
    """Return a text in bounds; PostgreSQL takes no NUL, and UTF-8 no half of a surrogate pair."""
    clean = redact(text[: 2 * longest].replace("\0", "").encode("utf-8", "replace").decode())
    return clean if len(clean) <= longest else f"{clean[: longest - 1]}…"


def stored(record: JobRecord) -> str:
    """Return the JSON of a record as it is stored.

    Of one that is too long, in letters of four bytes say, every second sample or entry of the timeline is left out, of
    whichever there are more, and at last the message.
    """
    while len(text := orjson.dumps(record.to_json())) > LONGEST_RECORD:
        if record.samples and len(record.samples) >= len(record.timeline):
            record = replace(record, samples=_halved(record.samples))
        elif record.timeline:
            record = replace(record, timeline=_halved(record.timeline))
        else:
            record = replace(record, message="")
    return text.decode()


def _halved(listed: Sequence[T]) -> Sequence[T]:
    """Return every second one, and the last one of all as long as there are several."""
    return (*listed[:-2:2], listed[-1]) if len(listed) > 1 else ()


def gone(record: JobRecord, *, at: str, text: str) -> JobRecord:
    """Return the record of a job that is deleted, and had perhaps not ended.

    Args:
        text: What is told of that: a sentence, as far as its verb.
    """
    timeline = [*record.timeline, TimelineEntry(at, DELETED, text.rstrip(","))]
    if record.has_ended:
        return replace(record, deleted=record.deleted or at, timeline=timeline)
    message = record.message or f"{text} before it had ended"
    return replace(record, deleted=at, ended=at, result=DELETED, message=message, timeline=timeline)


def merged(old: JobRecord, new: JobRecord) -> JobRecord:
    """Return what is known of a job after all, from what was known of it and what is known now."""
    end = old if old.is_final or (old.has_ended and not new.is_final) else new
    known = set(old.timeline)
    suspended = {each for each in new.timeline if each.event == "Suspended"} - known
    return replace(
        new,
        runtime=new.runtime or old.runtime,
        user=new.user or old.user,
        nodes=old.nodes if new.nodes is None else new.nodes,
        accelerators=new.accelerators or old.accelerators,
        goodput=end.goodput,
        started=min(filter(None, (old.started, new.started)), default=""),
        ended=end.ended,
        deleted=min(filter(None, (old.deleted, new.deleted)), default=""),
        result=end.result,
        cause=end.cause,
        message=end.message,
        exit_code=end.exit_code,
        restarts=max(old.restarts, new.restarts),
        suspensions=max(old.suspensions + len(suspended), new.suspensions) if old.timeline else new.suspensions,
        samples=_thinned([*old.samples, *new.samples]),
        timeline=_shortened([*old.timeline, *new.timeline]),
    )


def _thinned(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """Return samples by time, one for each moment, and of too many about every second one, never the last left out."""
    by_time = {each.time: each for each in samples}
    ordered = [by_time[time] for time in sorted(by_time)]
    while len(ordered) > _SAMPLES:
        ordered = [*ordered[:-1:2], ordered[-1]]
    return tuple(ordered)


def _moment(entry: TimelineEntry) -> tuple[str, int]:
    """Sort by time, and of what happened within one second the end last."""
    return entry.time, _LAST.index(entry.event) + 1 if entry.event in _LAST else 0


def _shortened(entries: Iterable[TimelineEntry]) -> tuple[TimelineEntry, ...]:
    ordered = sorted({(each.time, each.event): each for each in entries}.values(), key=_moment)
    if len(ordered) <= _ENTRIES:
        return tuple(ordered)
    return (*ordered[:_FIRST_ENTRIES], *ordered[_FIRST_ENTRIES - _ENTRIES :])
