"""Jobs as rows: their state, nodes, restarts and times, from the jobs and their pods, and the table of these; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.output import one_line
from trainmaster.controller.cli.printers import aligned, counted, human_duration
from trainmaster.controller.container_failures import rank_of
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.condition_causes import cause_of
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.pods import is_own
from trainmaster.controller.explain.state import state_of
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.job_fields import Progress, mapping, mappings, number, text, true_conditions
from trainmaster.controller.resilience.goodput import KINDS, LOST, PRODUCTIVE, goodput_of, share_of
from trainmaster.runtime.api.constants import COMPLETE, FAILED, JOBSET_LABEL, SUSPENDED, TRAINJOB_KIND
from trainmaster.runtime.jobs.constants import CREATED, JOB_NAME_LABEL, OPERATOR_NAME_LABEL, RUNNING, SUCCEEDED
from trainmaster.runtime.jsontree import JsonObject

HEADER: Final = ("KIND", "NAME", "STATE", "CAUSE", "NODES", "RESTARTS", "AGE", "DURATION")
UNKNOWN: Final = "-"

_GOOD: Final = frozenset({COMPLETE, SUCCEEDED, CREATED, RUNNING})
"""Types of conditions that stand in nobody's way."""

_LONGEST: Final = 500


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job at a moment."""

    kind: str
    namespace: str
    name: str
    state: str
    """One of `explain.state.WORDS`."""

    cause: str
    """Why, as far as its conditions tell, or what else was looked at; empty if nothing tells."""

    has_ended: bool
    nodes: int
    """How many are ready; of a job of `kubeflow.org/v1`, active."""

    wanted: int | None
    """Of how many; None if nobody knows."""

    restarts: int
    created: str
    """RFC 3339, as the other times."""

    began: str
    """Since when it may run: its creation, or the end of its last suspension."""

    ended: str | None
    progress: Progress | None
    goodput: int | None = None
    """Percent of its time that was productive; None if nobody asked, or can tell."""

    trouble: Trouble | None = None
    """What stands in its way, for who asks for more than its name."""

    failures: Sequence[tuple[str, str]] = ()
    """The nodes on which it failed, as far as that was charged, each with the time."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.kind, self.namespace, self.name

    def age(self, now: datetime) -> float:
        """Return the seconds since it was created."""
        return _seconds(self.created, now)

    def duration(self, now: datetime) -> float | None:
        """Return the seconds from when it might run to its end, or up to now; None if it is suspended."""
        if self.state == SUSPENDED:
            return None
        return _seconds(self.began, now if self.ended is None else _time(self.ended))


def job_row(job: Job, pods: Iterable[JsonObject] | None, jobset: JsonObject | None, now: datetime) -> JobRow:
    """Return the row of a job.

    `pods` are those with the name of a TrainJob in their labels; None if nobody has looked, as for `jobset`.
    """
    created = job.metadata["creationTimestamp"]
    # Not those of a namesake that was deleted before.
    own = [pod for pod in pods or () if pod["metadata"]["creationTimestamp"] >= created]
    known = None if pods is None or not job.is_trainjob else own
    state = state_of(JobView(job.object, now=now, pods=known, jobsets=None if jobset is None else [jobset])).word
    cause = None if job.outcome not in (None, FAILED) else cause_of(job.conditions)
    sets = job.pod_sets(jobset or {})
    wanted = sum(each.pods for each in sets if each.is_node) or sum(each.pods for each in job.pod_sets({}))
    if job.is_trainjob:
        nodes = sum("Ready" in true_conditions(pod) for pod in own if rank_of(pod) is not None)
    else:
        nodes = sum(number(each.get("active")) for each in job.replicas)
    attempts = mappings(mapping(job.status.get("resilience")).get("attempts"))
    charged = [each for each in attempts if each.get("charged") and each.get("node")]
    return JobRow(
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        state=state,
        cause="" if cause in (None, Cause.SUSPENDED) else str(cause),
        has_ended=job.outcome is not None,
        nodes=nodes,
        wanted=wanted or (None if job.is_trainjob else 0),
        restarts=job.restarts(jobset or {}, own),
        created=created,
        began=job.began,
        ended=job.ended or None,
        progress=job.progress,
        failures=[(each["node"], text(each.get("endedAt"))) for each in charged],
    )


def _seconds(since: str, until: datetime) -> float:
    return (until - _time(since)).total_seconds()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a job does not start, does not go on, or has failed."""

    cause: str
    """One of the causes of `trainmaster explain`, or the reason of a condition; empty if it has no name."""

    text: str
    """One line."""

    def __str__(self) -> str:
        """Return both, as they are shown."""
        return ": ".join(filter(None, (self.cause, self.text)))


def may_be_troubled(job: Job, row: JobRow) -> bool:
    """Tell whether there may be something in the way of a job, so that it is worth while to ask what."""
    if job.outcome is not None:
        return job.outcome == FAILED
    is_running = row.state == RUNNING and (row.wanted is None or row.nodes >= row.wanted)
    return not is_running or any(kind not in _GOOD for kind in job.conditions)


def trouble_of(
    job: Job, *, pods: Sequence[JsonObject] | None, jobset: JsonObject | None, now: datetime
) -> Trouble | None:
    """Return what stands in the way of a job; None if nothing does, or nothing tells of it."""
    if job.outcome is not None and job.outcome != FAILED:
        return None
    view = JobView(
        job.object,
        now=now,
        pods=None if pods is None else [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods],
        jobsets=None if jobset is None else [jobset],
    )
    explanation = explain(view)
    for finding in explanation.findings:
        if finding.cause is not Cause.UNKNOWN:
            first = finding.evidence[0]
            # The job is named beside it, and what is told of pods says of which rank.
            of = "" if first.object.kind in (view.kind, "Pod") else f"{first.object}: "
            return Trouble(str(finding.cause), _one_line(f"{of}{first.text}"))
    state = explanation.state.word
    told = job.conditions.get(state)
    if told is None or state in _GOOD:
        return None
    reason = told.get("reason") or state
    return Trouble("" if reason == Cause.UNKNOWN else reason, _one_line(told.get("message") or state))


def _one_line(text: str) -> str:
    return one_line(text)[:_LONGEST]


def rows_of(
    jobs: Iterable[Job],
    *,
    pods: Iterable[JsonObject] | None,
    jobsets: Iterable[JsonObject],
    now: datetime,
    with_trouble: bool = False,
) -> list[JobRow]:
    """Return the rows of jobs, in their order, with their causes as far as conditions and pods tell.

    There may be pods and JobSets of others among these; None, or none, if they may not be read. `with_trouble`: also
    with what stands in their way, or why they failed.
    """
    pods_by_owner: dict[str, list[JsonObject]] = {}
    for pod in pods or ():
        for owner in jobs_of(pod):
            pods_by_owner.setdefault(owner, []).append(pod)
    jobset_of = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in jobsets}
    rows = []
    for job in jobs:
        own = None if pods is None else [each for each in pods_by_owner.get(owner_key(job), ()) if is_own(each, job)]
        jobset = jobset_of.get((job.namespace, job.name)) if job.is_trainjob else None
        row = job_row(job, own, jobset, now)
        # Why a TrainJob has failed its conditions tell; of other jobs only pods do.
        if may_be_troubled(job, row) and (with_trouble or not (row.has_ended and job.is_trainjob)):
            trouble = trouble_of(job, pods=own, jobset=jobset, now=now)
            row = replace(row, cause="" if trouble is None or row.state == SUSPENDED else trouble.cause)
            row = replace(row, trouble=trouble) if with_trouble else row
        if job.is_trainjob:
            row = replace(row, goodput=share_of(goodput_of(job.object, pods=own or (), jobset=jobset, now=now)))
        rows.append(row)
    return rows


def owner_key(job: Job) -> str:
    """Return the kind, namespace and name of a job, as `jobs_of` its pods has them."""
    return f"{job.kind.lower()} {job.namespace}/{job.name}"


def jobs_of(pod: JsonObject) -> list[str]:
    """Return the job that a pod is of, by its labels; none if it is of no job."""
    metadata = pod.get("metadata") or {}
    labels = metadata.get("labels") or {}
    if JOBSET_LABEL in labels:
        return [f"{TRAINJOB_KIND.lower()} {metadata['namespace']}/{labels[JOBSET_LABEL]}"]
    controller = str(labels.get(OPERATOR_NAME_LABEL) or "").removesuffix("-controller")
    return [f"{controller} {metadata['namespace']}/{labels[JOB_NAME_LABEL]}"] if JOB_NAME_LABEL in labels else []


def table(rows: Iterable[JobRow], *, now: datetime, namespaces: bool, wide: bool = False) -> list[str]:
    """Return the lines of the table."""
    columns = slice(0 if namespaces else 1, None if wide else -1)
    cells = (_cells(each, now) for each in rows)
    return aligned([row[columns] for row in (("NAMESPACE", *HEADER, "GOODPUT"), *cells)])


def _cells(row: JobRow, now: datetime) -> tuple[str, ...]:
    duration = row.duration(now)
    return (
        row.namespace,
        row.kind,
        row.name,
        row.state,
        row.cause or UNKNOWN,
        nodes_text(row),
        str(row.restarts),
        human_duration(row.age(now)),
        UNKNOWN if duration is None else human_duration(duration),
        UNKNOWN if row.goodput is None else f"{row.goodput}%",
    )


def has_words(row: JobRow, words: str) -> bool:
    """Tell whether all words occur in the name, kind, state or cause of a job, in any case of letters."""
    shown = f"{row.namespace}/{row.name} {row.kind} {row.state} {row.trouble or row.cause}".lower()
    return all(word in shown for word in words.lower().split())


def nodes_text(row: JobRow) -> str:
    """Write how many nodes there are of those wanted; of a job that has ended none are, whatever became of it."""
    wanted = UNKNOWN if row.wanted is None else str(row.wanted)
    return wanted if row.has_ended else f"{row.nodes}/{wanted}"


def goodput_words(goodput: Mapping[str, Any], failures: int = 0) -> str:
    """Say what the time of a job was spent on: `12h of which 10h40m productive (89 %), 50m lost in 2 failures`."""
    spent = {kind: seconds for kind, field in KINDS.items() if (seconds := number(goodput.get(field)))}
    words = {kind: f"{human_duration(seconds)} {kind.lower()}" for kind, seconds in spent.items()}
    if PRODUCTIVE in words:
        words[PRODUCTIVE] += f" ({share_of(goodput)} %)"
    if LOST in words:
        words[LOST] += f" in {counted(failures, 'failure')}" if failures else ""
        words[LOST] += " as an estimate" if goodput.get("estimated") else ""
    return f"{human_duration(sum(spent.values()))} of which {', '.join(words.values())}"
