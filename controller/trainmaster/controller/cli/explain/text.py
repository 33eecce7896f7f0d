"""An explanation as people read it, and as programs do; pure.

In the JSON fields are added, not renamed or removed, without another `apiVersion`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from trainmaster.controller.cli.follow.activity import activity
from trainmaster.controller.cli.follow.failures import attempt_of, excerpt
from trainmaster.controller.cli.jobs.rows import goodput_words
from trainmaster.controller.cli.printers import counted, human_duration
from trainmaster.controller.cli.probes import POD_LOGS
from trainmaster.controller.conditions import BLOCKED, CONTAINER_FAILED, WAITING
from trainmaster.controller.container_failures import meaning_of
from trainmaster.controller.explain.causes.limits import seconds_to_live
from trainmaster.controller.explain.explanation import Explanation
from trainmaster.controller.explain.findings import Evidence, Finding, ObjectReference
from trainmaster.controller.explain.pods import FailedContainer, known_pods
from trainmaster.controller.explain.state import PATIENCE, State
from trainmaster.controller.explain.timeline import Moment
from trainmaster.controller.explain.view import JobView, role_of
from trainmaster.controller.resilience.goodput import KINDS, LOST, PRODUCTIVE, failures_of, goodput_of
from trainmaster.runtime.jsontree import JsonObject

_LONGEST: Final = 1000
"""Characters of a piece of evidence."""

_NAMED: Final = 4
"""Pods of others that are named."""

_TROUBLED: Final = frozenset({BLOCKED, CONTAINER_FAILED, WAITING})
"""What a condition says, whatever pods look like."""

API_VERSION: Final = "trainmaster.dev/v1"
KIND: Final = "Explanation"


def lines_of(explanation: Explanation, view: JobView) -> Iterator[str]:
    """Return the lines that are printed of an explanation."""
    yield _state(explanation, view)
    if (goodput := _goodput(view)) and (goodput.get(KINDS[PRODUCTIVE]) or goodput.get(KINDS[LOST])):
        yield f"  {goodput_words(goodput, failures_of(view.object))}"
    if not explanation.findings:
        yield from (f"  {line}" for line in _nothing_wrong(explanation, view))
    if (left := seconds_to_live(view)) is not None:
        yield f"  it will be deleted in {human_duration(left.total_seconds())}: its ttlSecondsAfterFinished"
    if view.foreign_pods:
        foreign = ", ".join(str(pod["metadata"]["name"]) for pod in view.foreign_pods[:_NAMED])
        more = f" and {len(view.foreign_pods) - _NAMED} more" if len(view.foreign_pods) > _NAMED else ""
        yield f"  left out: {foreign}{more}: not of this job, although with its labels: who made it has to change these"
    for number, finding in enumerate(explanation.findings, 1):
        yield ""
        yield from _finding(f"{number}. ", finding, view.now)
    if explanation.failed_container is not None and explanation.findings:
        yield ""
        may_be_read = all(each.what != POD_LOGS.name for each in explanation.unread)
        yield from _failed_container(explanation.failed_container, view.now, may_be_read=may_be_read)
    if explanation.overcome:
        yield ""
        yield "it has overcome:"
        for finding in explanation.overcome:
            told = "; ".join(each.text for each in finding.evidence)
            since = f", {_ago(finding.since, view.now)}" if finding.since else ""
            yield f"  {finding.cause}{since}: {finding.evidence[0].object}: {_cut(told)}"
    if explanation.timeline:
        yield ""
        yield from _timeline(explanation.timeline)
    if explanation.unread:
        yield ""
        yield "could not look at:"
        by_text: dict[str, list[str]] = {}
        for each in explanation.unread:
            by_text.setdefault(each.text, []).append(each.what)
        for text, names in by_text.items():
            yield f"  {', '.join(names)}: {_cut(text)}"


def _state(explanation: Explanation, view: JobView) -> str:
    state, restarts = explanation.state, explanation.restarts
    since = f" for {human_duration((view.now - state.since).total_seconds())}" if state.since is not None else ""
    details = [*filter(None, [state.detail]), *([counted(restarts, "restart")] if restarts else ())]
    detail = f" ({_cut(', '.join(details))})" if details else ""
    return f"{view.kind} {view.namespace}/{view.name}: {state.word}{since}{detail}"


def _goodput(view: JobView) -> JsonObject | None:
    """Return what the time of a TrainJob was spent on, for those that are there."""
    if not view.is_trainjob or view.is_deleted:
        return None
    jobset = next(iter(view.jobsets or ()), None)
    return goodput_of(view.object, pods=known_pods(view), jobset=jobset, now=view.now)


def _nothing_wrong(explanation: Explanation, view: JobView) -> Iterator[str]:
    state = explanation.state.state
    if state is State.RUNNING and explanation.state.word not in _TROUBLED:
        yield from activity(view)
    elif state is State.COMPLETE:
        yield "all is well"
    elif state is State.DELETED:
        yield "it is gone, and no event tells more"
    else:
        yield f"nothing is wrong so far; ask again if that is still so in {PATIENCE.total_seconds():.0f} seconds"


def _finding(prefix: str, finding: Finding, now: datetime) -> Iterator[str]:
    yield f"{prefix}{finding.cause} ({finding.certainty.word}): {finding.cause.summary}"
    indent = " " * len(prefix)
    for evidence in finding.evidence:
        yield f"{indent}{_evidence(evidence, now)}"
    yield f"{indent}what to do:"
    for line in finding.what_next:
        yield f"{indent}- {line}"


def _evidence(evidence: Evidence, now: datetime) -> str:
    about = str(evidence.object).strip()
    at = f" ({_ago(evidence.at, now)})" if evidence.at is not None else ""
    return f"{about}: {_cut(evidence.text)}{at}"


def _failed_container(failed: FailedContainer, now: datetime, *, may_be_read: bool) -> Iterator[str]:
    failure = failed.failure
    meaning = meaning_of(failure.exit_code, failure.reason)
    told = ", ".join(each for each in (failure.reason if failure.reason != "Error" else "", meaning) if each)
    moment = datetime.fromisoformat(failure.at) if failure.at else None
    at = f", {_ago(moment, now)}" if moment is not None else ""
    attempt = "" if not (failure.attempt or failure.run) else f"; {attempt_of(failure)}"
    yield (
        f"first failure: {role_of(failed.pod)}: container {failure.container} of pod {failure.pod} ended with exit "
        f"code {failure.exit_code}{f' ({told})' if told else ''}{at}{attempt}"
    )
    if failed.lines:
        yield "  its last lines:"
        for line in excerpt(failed.lines):
            yield f"  | {line}"
    else:
        yield "  it has printed nothing, or its log is gone" if may_be_read else "  its log may not be read"


def _timeline(moments: Sequence[Moment]) -> Iterator[str]:
    start = moments[0].at
    yield f"timeline (UTC, and time since the beginning, {_stamp(start)[:10]}):"
    rows = [(_stamp(each.at)[11:], f"+{human_duration((each.at - start).total_seconds())}", each) for each in moments]
    width = max(len(since) for _, since, _ in rows)
    for at, since, each in rows:
        last = "" if each.until is None else f" (the last +{human_duration((each.until - start).total_seconds())})"
        yield f"  {at}  {since:<{width}}  {_cut(each.text)}{last}"


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _ago(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else f"{human_duration((now - moment).total_seconds())} ago"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 4]} ..."


def to_json(explanation: Explanation, view: JobView) -> JsonObject:
    """Return an explanation as JSON; times are RFC 3339, null where nobody knows."""
    state = explanation.state
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "job": _reference_json(explanation.job),
        "state": {"name": state.word, "since": _time_json(state.since), "detail": state.detail},
        "restarts": explanation.restarts,
        "goodput": _goodput(view),
        "causes": [_finding_json(each) for each in explanation.findings],
        "overcome": [_finding_json(each) for each in explanation.overcome],
        "failedContainer": _failed_container_json(explanation.failed_container),
        "timeline": [_moment_json(each) for each in explanation.timeline],
        "foreignPods": [pod["metadata"]["name"] for pod in view.foreign_pods],
        "unread": [{"resource": each.what, "why": each.why, "text": each.text} for each in explanation.unread],
    }


def _finding_json(finding: Finding) -> JsonObject:
    return {
        "cause": finding.cause,
        "summary": finding.cause.summary,
        "certainty": finding.certainty.word,
        "since": _time_json(finding.since),
        "evidence": [_evidence_json(each) for each in finding.evidence],
        "whatNext": list(finding.what_next),
    }


def _evidence_json(evidence: Evidence) -> JsonObject:
    return {"object": _reference_json(evidence.object), "text": evidence.text, "at": _time_json(evidence.at)}


def _failed_container_json(failed: FailedContainer | None) -> JsonObject | None:
    if failed is None:
        return None
    failure = failed.failure
    return {
        "pod": failure.pod,
        "container": failure.container,
        "role": role_of(failed.pod),
        "rank": failure.rank,
        "ranks": None if failure.ranks is None else list(failure.ranks),
        "attempt": failure.attempt,
        "run": failure.run,
        "exitCode": failure.exit_code,
        "reason": failure.reason,
        "at": failure.at or None,
        "lastLines": list(failed.lines),
    }


def _moment_json(moment: Moment) -> JsonObject:
    return {
        "at": _time_json(moment.at),
        "until": _time_json(moment.until),
        "text": moment.text,
        "object": None if moment.object is None else _reference_json(moment.object),
    }


def _reference_json(reference: ObjectReference) -> JsonObject:
    return {"kind": reference.kind, "namespace": reference.namespace or None, "name": reference.name}


def _time_json(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
