"""An explanation as programs read it: fields are added, not renamed or removed, without another `apiVersion`. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from trainmaster.controller.explain.explanation import Explanation, FailedContainer
from trainmaster.controller.explain.findings import Evidence, Finding, ObjectReference
from trainmaster.controller.explain.timeline import Moment
from trainmaster.runtime.jsontree import JsonObject

API_VERSION: Final = "trainmaster.dev/v1"
KIND: Final = "Explanation"


def to_json(explanation: Explanation) -> JsonObject:
    """Return an explanation as JSON; times are RFC 3339, null where nobody knows."""
    state = explanation.state
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "job": _reference(explanation.job),
        "state": {"name": state.state, "since": _time(state.since), "detail": state.detail},
        "causes": [_finding(each) for each in explanation.findings],
        "overcome": [_finding(each) for each in explanation.overcome],
        "failedContainer": _failed_container(explanation.failed_container),
        "timeline": [_moment(each) for each in explanation.timeline],
        "unread": [{"resource": each.what, "why": each.why, "text": each.text} for each in explanation.unread],
    }


def _finding(finding: Finding) -> JsonObject:
    return {
        "cause": finding.cause,
        "summary": finding.cause.summary,
        "certainty": finding.certainty.word,
        "since": _time(finding.since),
        "evidence": [_evidence(each) for each in finding.evidence],
        "whatNext": list(finding.what_next),
    }


def _evidence(evidence: Evidence) -> JsonObject:
    return {"object": _reference(evidence.object), "text": evidence.text, "at": _time(evidence.at)}


def _failed_container(failed: FailedContainer | None) -> JsonObject | None:
    if failed is None:
        return None
    failure = failed.failure
    return {
        "pod": failed.pod.name,
        "container": failure.container,
        "role": failed.role,
        "rank": failure.rank,
        "attempt": failure.attempt,
        "run": failure.run,
        "exitCode": failure.exit_code,
        "reason": failure.reason,
        "at": failure.at or None,
        "lastLines": list(failed.lines),
    }


def _moment(moment: Moment) -> JsonObject:
    return {
        "at": _time(moment.at),
        "until": _time(moment.until),
        "text": moment.text,
        "object": None if moment.object is None else _reference(moment.object),
    }


def _reference(reference: ObjectReference) -> JsonObject:
    return {"kind": reference.kind, "namespace": reference.namespace or None, "name": reference.name}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
