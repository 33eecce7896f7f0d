"""The display on a terminal: what jobs print scrolls by above the state of all jobs."""

from __future__ import annotations

import io

from rich.console import Console

from trainmaster.controller.cli.follow.job_status import FollowedJob, JobStatus
from trainmaster.controller.cli.follow.live_reporter import LiveReporter
from trainmaster.runtime.jsontree import JsonObject


def pod(uid: str, phase: str) -> JsonObject:
    return {"metadata": {"name": uid, "uid": uid}, "spec": {"containers": []}, "status": {"phase": phase}}


def view(**fields: object) -> JobStatus:
    view = JobStatus(FollowedJob("default", "job", "uid", "2024-01-01T00:00:00Z"))
    for name, value in fields.items():
        setattr(view, name, value)
    return view


def test_the_display_shows_the_state_and_logs_keep_their_own_text() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, color_system=None, width=100)
    with LiveReporter(console) as reporter:
        reporter.show([view(pods={uid: pod(uid, "Running") for uid in "ab"})])
        reporter.log(["10%\r55%\r100% [bold]done[/bold]"])
        reporter.report("a fact", bad=True)
    text = output.getvalue()
    assert "default/job  Running  2 Running" in text
    assert "100% [bold]done[/bold]" in text
    assert "55%" not in text
    assert "a fact" in text


def test_a_job_is_in_the_state_that_matters_most() -> None:
    true = {"status": "True"}
    waiting = pod("w", "Pending")
    waiting["status"]["containerStatuses"] = [{"name": "node", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    assert view().state == "Pending"
    assert view(pods={"a": pod("a", "Running")}).state == "Running"
    assert view(conditions={"Blocked": true}).state == "Blocked"
    assert view(conditions={"Blocked": true, "Suspended": true}).state == "Suspended"
    assert view(conditions={"Suspended": true, "Failed": true}).state == "Failed"
    assert view(deleted=True).state == "Deleted"
    assert view(conditions={"Complete": true}, deleted=True).state == "Complete"
    assert view(pods={"w": waiting, "a": pod("a", "Failed")}).pod_summary == "1 Failed, 1 ImagePullBackOff"
