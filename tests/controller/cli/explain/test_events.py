"""Events of a namespace in which there are more than anybody reads: those about the job are found all the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.job_views import event as parsed
from support.team import Team

from trainmaster.controller.cli.explain import events
from trainmaster.controller.cli.explain.events import read_events
from trainmaster.controller.cli.explain.reader import Reader
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.testing.faults import Refuse
from trainmaster.runtime.jsontree import JsonObject

CORE_EVENTS = Resource("", "v1", "Event", "events", namespaced=True)
LATER = timedelta(seconds=60)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten events are more than anybody reads."""
    monkeypatch.setattr(events, "MOST", 10)


async def say(mine: Team, number: int, kind: str, name: str, reason: str) -> None:
    # The server keeps events by name, and controllers name them after what they are about.
    metadata = {"name": f"{name}.{number:03}", "namespace": mine.name}
    about = {"kind": kind, "namespace": mine.name, "name": name, "uid": f"uid-of-{name}"}
    told = {"involvedObject": about, "reason": reason, "type": "Warning", "message": "so it is"}
    await mine.client.create(CORE_EVENTS, {"apiVersion": "v1", "kind": "Event", "metadata": metadata, **told})


async def look(mine: Team, job: JsonObject, **known: Any) -> tuple[set[tuple[str, str]], list[str]]:
    """The events of a job as name and reason, and what could not be read."""
    reader = Reader(mine.client, mine.name)
    found = await read_events(reader, JobView(now=datetime.now(UTC) + LATER, job=job, **known))
    return {(each.about.name, each.reason) for each in found or ()}, [each.text for each in reader.unread]


@pytest.mark.usefixtures("few")
async def test_the_events_of_a_job_are_found_behind_those_of_others(quiet: tuple[Team, Cluster]) -> None:
    mine, _ = quiet
    job = await mine.submit("wide", "true")
    for number in range(15):
        await say(mine, number, "Pod", "another-node-0-0-x", "FailedScheduling")
    await say(mine, 1, "TrainJob", "wide", "ContainerFailed")
    await say(mine, 2, "JobSet", "wide", "JobCreationFailed")
    await say(mine, 3, "Job", "wide-node-0", "FailedCreate")
    await say(mine, 4, "Pod", "wide-node-0-1-x", "BackOff")
    await say(mine, 5, "Pod", "wide-node-0-0-gone", "Preempted")
    known = [{"kind": "Pod", "metadata": {"name": "wide-node-0-1-x", "uid": "uid-of-wide-node-0-1-x"}}]
    jobs = [{"kind": "Job", "metadata": {"name": "wide-node-0", "uid": "uid-of-wide-node-0"}}]
    found, unread = await look(mine, job, pods=known, jobs=jobs)
    assert found == {
        ("wide", "ContainerFailed"),
        ("wide", "JobCreationFailed"),
        ("wide-node-0", "FailedCreate"),
        ("wide-node-0-1-x", "BackOff"),
        ("wide-node-0-0-gone", "Preempted"),
    }
    assert unread == [
        "there are more than 10 of them in the namespace; those about the job and some of its pods were read"
    ]


async def test_of_a_namespace_with_few_events_one_request_is_enough(quiet: tuple[Team, Cluster]) -> None:
    """A second one would be refused."""
    mine, cluster = quiet
    job = await mine.submit("wide", "true")
    await say(mine, 1, "TrainJob", "wide", "ContainerFailed")
    with cluster.faults.add(Refuse(403), resource="events", nth=2):
        assert await look(mine, job) == ({("wide", "ContainerFailed")}, [])


def test_what_many_pods_say_does_not_push_out_what_is_said_of_the_job() -> None:
    of_job = parsed("JobCreationFailed", kind="JobSet", first=1)
    of_pods = [parsed("FailedScheduling", kind="Pod", name=f"demo-node-0-{n}-x", first=2 + n) for n in range(2000)]
    kept = events.newest_of_each_kind([of_job, *of_pods])
    assert kept == [of_job, *of_pods[-500:]]
