"""The condition Waiting: why the pods of a TrainJob do not start, when that is told, and what it costs."""

import pytest
from support.failing_pods import COMPLETED, FAILED, FailingWorld, failing, pod
from support.job_views import condition
from support.objects import replicated_job

from trainmaster.controller.diagnosis.waiting import LONGEST
from trainmaster.controller.kube.rest.errors import Forbidden
from trainmaster.controller.reconciling.outcomes import DONE, RequeueAfter
from trainmaster.runtime.api.constants import COSCHEDULING_POD_LABEL, VOLCANO_POD_ANNOTATION
from trainmaster.runtime.jsontree import JsonObject

MESSAGE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def pending(rank: int = 0, message: str = MESSAGE) -> JsonObject:
    """A pod that no node can take."""
    found = pod(rank, phase="Pending", conditions=[condition("PodScheduled", "Unschedulable", message, status="False")])
    del found["status"]["containerStatuses"]
    return found


async def waiting_world(*pods: JsonObject, **counts: int) -> FailingWorld:
    """A TrainJob that was created now, with pods of which none gets ready; or with other counts of Jobs."""
    world = await FailingWorld.starting(replicated_job())
    created = world.find("TrainJob")["metadata"]
    created["creationTimestamp"] = world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    world.change("TrainJob", metadata=created)
    world.show_pods(*pods)
    await world.report(**(counts or {"active": 1}))
    return world


async def look(world: FailingWorld, seconds: float) -> None:
    """Let time pass, and reconcile when that is due."""
    end = world.clock.monotonic() + seconds
    while True:
        outcome = await world.reconcile()
        due = outcome.seconds if isinstance(outcome, RequeueAfter) else seconds
        left = end - world.clock.monotonic()
        if left <= 0:
            return
        await world.clock.advance(min(due, left))


async def test_after_half_a_minute_the_cause_is_told_and_not_before() -> None:
    world = await waiting_world(pending(0), pending(1))
    await look(world, 29)
    assert world.conditions == {}
    await look(world, 12)
    told = world.conditions["Waiting"]
    assert (told["status"], told["reason"]) == ("True", "Unschedulable")
    assert told["message"].startswith("no node can take a pod of it: Pod demo-node-0-0-abcde: rank 0 and 1 other: ")
    assert MESSAGE in told["message"]


async def test_a_start_that_has_failed_is_told_at_the_first_look() -> None:
    reason = {"reason": "CreateContainerConfigError", "message": 'secret "token" not found'}
    world = await waiting_world(pod(0, {"waiting": reason}, phase="Pending"))
    await look(world, 9)
    assert world.conditions == {}
    await look(world, 2)
    assert world.conditions["Waiting"]["reason"] == "ContainerConfigError"


@pytest.mark.parametrize("mark", [{"labels": COSCHEDULING_POD_LABEL}, {"annotations": VOLCANO_POD_ANNOTATION}])
async def test_whether_a_gang_lacks_room_is_left_to_those_who_read_its_pod_group(mark: dict[str, str]) -> None:
    gang = [pending(0), pending(1)]
    for each in gang:
        for field, name in mark.items():
            each["metadata"].setdefault(field, {})[name] = "demo"
    world = await waiting_world(*gang)
    await look(world, 41)
    told = world.conditions["Waiting"]
    assert (told["status"], told["reason"]) == ("True", "Unknown")
    assert told["message"].startswith("pods of its gang have no node; `trainmaster explain` tells from their PodGroup ")
    assert MESSAGE in told["message"]
    for each in gang:
        each["status"]["conditions"][0]["message"] = "0/3 nodes are available: 3 node(s) had untolerated taint {gpu: }."
    await look(world, 600)
    assert world.conditions["Waiting"]["reason"] == "Unschedulable", "no room would mend that"


async def test_it_is_gone_when_all_pods_are_ready_and_when_the_job_has_ended() -> None:
    for conditions, counts in (
        ((), {"active": 1, "ready": 1}),
        ((FAILED,), {"failed": 1}),
        ((COMPLETED,), {"succeeded": 1}),
    ):
        world = await waiting_world(pending())
        await look(world, 45)
        assert "Waiting" in world.conditions
        await world.report(*conditions, **counts)
        assert "Waiting" not in world.conditions


async def test_it_costs_no_more_reads_than_the_looks_at_pods_that_do_not_get_ready() -> None:
    """After ten seconds, twenty more, forty more, and so on, up to five minutes in between."""
    world = await waiting_world(pending())
    await look(world, 600)
    assert world.reads == 5
    writes = world.requests.count("patch status")
    await look(world, 3600)
    assert world.reads <= 5 + 12
    assert world.requests.count("patch status") == writes, "the same is told once"
    assert not any(request.startswith("list Event") for request in world.requests)


async def test_a_job_that_starts_in_time_costs_no_request() -> None:
    world = await FailingWorld.starting(replicated_job())
    world.show_pods(pod(0), pod(1))
    await world.report()
    await world.clock.advance(5)
    await world.report(active=1)
    await world.clock.advance(5)
    await world.report(active=1, ready=1)
    await world.clock.advance(2)
    await world.reconcile()
    assert await world.reconcile() == DONE
    assert not any(request.startswith("list") for request in world.requests)


async def test_numbers_that_change_are_no_news() -> None:
    world = await waiting_world(pending(message="0/3 nodes are available: 3 Insufficient cpu."))
    await look(world, 45)
    told = world.conditions["Waiting"]
    world.show_pods(pending(message="0/4 nodes are available: 4 Insufficient cpu."))
    await look(world, 600)
    assert world.conditions["Waiting"] == told
    world.show_pods(pending(message="0/4 nodes are available: 4 node(s) had untolerated taint {gpu: }."))
    await look(world, 600)
    assert "untolerated taint" in world.conditions["Waiting"]["message"]


async def test_it_is_bounded_and_has_no_credentials() -> None:
    secret = "Authorization: Bearer ghp_" + "a" * 36
    world = await waiting_world(*(pending(rank, f"{secret} {rank} " + "x" * 3000) for rank in range(5)))
    await look(world, 45)
    message = world.conditions["Waiting"]["message"]
    assert len(message) <= LONGEST
    assert "ghp_" not in message


async def test_a_failure_that_is_told_is_not_told_twice() -> None:
    world = await waiting_world(failing(0), failing(1))
    await look(world, 120)
    assert world.conditions.keys() == {"ContainerFailed"}


async def test_what_the_manager_is_blocked_by_comes_alone() -> None:
    world = await waiting_world(pending())
    await look(world, 45)
    blocking = {**world.find("JobSet"), "metadata": {**world.find("JobSet")["metadata"], "ownerReferences": []}}
    world.store(blocking)
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": False})
    await world.reconcile()
    assert "Blocked" in world.conditions
    assert "Waiting" not in world.conditions


async def test_pods_that_are_refused_are_told_by_the_events_of_their_job() -> None:
    """The Job has none, so that no pod tells anything."""
    world = await waiting_world(active=0)
    note = 'Error creating: pods "demo-node-0-0-x" is forbidden: exceeded quota: few, requested: pods=1'
    world.cluster_events = [
        {
            "metadata": {"name": "e", "namespace": "team"},
            "involvedObject": {"kind": "Job", "namespace": "team", "name": "demo-node-0"},
            "reason": "FailedCreate",
            "message": note,
            "type": "Warning",
            "lastTimestamp": "2026-01-01T00:00:05Z",
        }
    ]
    await look(world, 29)
    assert world.reads == 0
    await look(world, 45)
    told = world.conditions["Waiting"]
    assert told["reason"] == "QuotaExceeded"
    assert note in told["message"]
    selectors = [request for request in world.requests if request.startswith("list Event")]
    assert selectors[0] == ("list Event involvedObject.kind=Job,involvedObject.name=demo-node-0,reason=FailedCreate")


async def test_without_the_right_to_read_events_all_goes_on() -> None:
    world = await waiting_world(active=0)
    world.unreadable_events = Forbidden(status=403, reason="Forbidden")
    await look(world, 300)
    assert world.conditions == {}


async def test_what_nobody_knows_is_not_told() -> None:
    creating = pod(0, {"waiting": {"reason": "ContainerCreating"}}, phase="Pending")
    creating["spec"] = {"nodeName": "one"}
    world = await waiting_world(creating)
    await look(world, 300)
    assert world.conditions == {}


async def test_another_process_leaves_it_until_it_has_looked_itself() -> None:
    world = await waiting_world(pending())
    await look(world, 45)
    told = world.conditions["Waiting"]
    world.restart()
    await world.reconcile()
    assert world.conditions["Waiting"] == told
    await look(world, 45)
    assert world.conditions["Waiting"] == told
