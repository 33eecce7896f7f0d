"""The pod state machine, without processes: which actions and which status follow from what happened."""

from datetime import timedelta
from typing import Any

import pytest
from support.podlifecycle import TWO, Machine, at, begun, running

from trainmaster.devcluster.kubelet.container import LOST_REASON


def test_main_containers_start_together_and_once() -> None:
    machine = Machine(**TWO)
    assert machine.actions().start == ["a", "b"]
    assert machine.actions().start == []


def test_init_containers_run_in_order_and_each_waits_for_success() -> None:
    machine = Machine(initContainers=[{"name": "one"}, {"name": "two"}], restartPolicy="Never")
    assert machine.actions().start == ["one"]
    assert machine.run_and_exit("one").start == ["two"]
    assert machine.status()["phase"] == "Pending"
    assert machine.condition("Initialized")["status"] == "False"
    assert machine.status()["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
    assert machine.run_and_exit("two").start == ["main"]
    assert machine.condition("Initialized")["status"] == "True"


def test_a_failing_init_container_fails_the_pod_if_it_may_not_restart() -> None:
    machine = begun(initContainers=[{"name": "one"}], restartPolicy="Never")
    assert machine.run_and_exit("one", 1).start == []
    assert machine.lifecycle.finished
    assert machine.status()["phase"] == "Failed"


def test_a_failing_init_container_restarts_under_on_failure() -> None:
    machine = begun(initContainers=[{"name": "one"}], restartPolicy="OnFailure")
    actions = machine.run_and_exit("one", 1)
    assert (actions.start, actions.wake_at) == ([], at(1))
    assert machine.actions(after=1).start == ["one"]
    assert machine.lifecycle.phase == "Pending"


def test_sidecars_start_before_main_containers_and_end_after_them() -> None:
    sidecar = {"name": "proxy", "restartPolicy": "Always"}
    machine = Machine(initContainers=[sidecar, {"name": "one"}], restartPolicy="Never")
    assert machine.actions().start == ["proxy"]
    machine.start("proxy")
    assert machine.actions().start == ["one"]
    assert machine.run_and_exit("one").start == ["main"]
    assert machine.run_and_exit("main").terminate == ["proxy"]
    assert (machine.lifecycle.phase, machine.lifecycle.finished) == ("Running", False)
    assert machine.actions(after=30).kill == ["proxy"]
    machine.exit("proxy", 137)
    machine.actions()
    assert (machine.lifecycle.phase, machine.lifecycle.finished) == ("Succeeded", True)


def test_a_sidecar_that_ends_early_restarts() -> None:
    machine = begun(initContainers=[{"name": "proxy", "restartPolicy": "Always"}], restartPolicy="Never")
    machine.start("proxy")
    machine.actions()
    machine.start("main")
    machine.exit("proxy", 0)
    assert machine.actions().start == []
    assert machine.actions(after=1).start == ["proxy"]


@pytest.mark.parametrize(
    ("policy", "code", "restarts", "phase"),
    [
        ("Always", 0, True, "Running"),
        ("Always", 1, True, "Running"),
        ("OnFailure", 0, False, "Succeeded"),
        ("OnFailure", 1, True, "Running"),
        ("Never", 0, False, "Succeeded"),
        ("Never", 1, False, "Failed"),
    ],
)
def test_restart_policies(policy: str, code: int, restarts: bool, phase: str) -> None:
    machine = begun(restartPolicy=policy)
    actions = machine.run_and_exit("main", code)
    assert actions.start == []
    assert (actions.wake_at is not None) is restarts
    assert machine.status()["phase"] == phase
    assert machine.lifecycle.finished is not restarts


def test_the_pod_goes_on_until_every_main_container_has_ended() -> None:
    machine = begun(**TWO, restartPolicy="Never")
    machine.start("a", "b")
    machine.exit("a", 1)
    machine.actions()
    assert (machine.lifecycle.phase, machine.lifecycle.finished) == ("Running", False)
    machine.exit("b", 0)
    machine.actions()
    assert (machine.lifecycle.phase, machine.lifecycle.finished) == ("Failed", True)


def test_delays_double_up_to_the_cap_and_restarts_are_counted() -> None:
    machine = begun(restartPolicy="OnFailure")
    delays = []
    for _ in range(11):
        actions = machine.run_and_exit("main", 1)
        assert actions.wake_at is not None
        delays.append((actions.wake_at - machine.now).total_seconds())
        assert machine.actions(after=delays[-1] - 0.001).start == []
        assert machine.actions(after=0.001).start == ["main"]
    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert machine.status()["containerStatuses"][0]["restartCount"] == 11


def test_a_container_that_ran_long_restarts_soon_again() -> None:
    machine = begun(restartPolicy="Always")
    for _ in range(4):
        machine.run_and_exit("main", 1)
        machine.actions(after=300)
    machine.start("main")
    machine.actions(after=600)
    machine.exit("main", 1)
    assert machine.actions().wake_at == machine.now + timedelta(seconds=1)


def test_deletion_terminates_once_and_kills_after_the_grace_period() -> None:
    machine = running(restartPolicy="Always")
    machine.lifecycle.delete(grace=10, now=machine.now)
    actions = machine.actions()
    assert (actions.terminate, actions.kill, actions.wake_at) == (["main"], [], at(10))
    assert machine.actions(after=9).terminate == []
    assert machine.actions(after=1).kill == ["main"]
    assert machine.actions(after=1).kill == []
    machine.exit("main", 137)
    assert machine.actions().start == [], "a pod that stops restarts nothing"
    assert (machine.lifecycle.phase, machine.lifecycle.finished) == ("Failed", True)


def test_a_second_deletion_may_shorten_the_grace_period_only() -> None:
    machine = running()
    machine.lifecycle.delete(grace=10, now=machine.now)
    machine.lifecycle.delete(grace=60, now=machine.now)
    assert machine.actions().wake_at == at(10)
    machine.lifecycle.delete(grace=0, now=machine.now)
    assert machine.actions().kill == ["main"]


def test_a_container_that_is_just_starting_is_stopped_too() -> None:
    machine = begun()
    machine.lifecycle.delete(grace=5, now=machine.now)
    assert machine.actions().terminate == ["main"]
    assert not machine.lifecycle.finished
    machine.start("main")
    machine.exit("main", 143)
    assert machine.lifecycle.finished


def test_a_deleted_pod_that_never_ran_fails() -> None:
    """The Job controller waits for a final phase before it replaces the pod."""
    machine = begun(initContainers=[{"name": "one"}])
    machine.start("one")
    machine.lifecycle.delete(grace=5, now=machine.now)
    machine.actions()
    machine.exit("one", 143)
    assert machine.actions().start == []
    terminated = machine.status()["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, LOST_REASON)
    assert machine.status()["phase"] == "Failed"


def test_the_deadline_of_the_pod_stops_it() -> None:
    machine = Machine(activeDeadlineSeconds=60, terminationGracePeriodSeconds=5, restartPolicy="OnFailure")
    assert machine.actions().wake_at == at(60)
    machine.start("main")
    actions = machine.actions(after=60)
    assert (actions.terminate, actions.wake_at) == (["main"], at(65))
    machine.exit("main", 143)
    machine.actions()
    assert machine.lifecycle.finished
    assert (machine.status()["phase"], machine.status()["reason"]) == ("Failed", "DeadlineExceeded")


def test_the_deadline_counts_from_the_recorded_start() -> None:
    machine = Machine(activeDeadlineSeconds=60, status={"startTime": "2026-11-20T11:59:30Z"})
    assert machine.actions().wake_at == at(30)


def test_the_deadline_of_a_finished_pod_does_not_matter() -> None:
    machine = begun(activeDeadlineSeconds=60, restartPolicy="Never")
    machine.run_and_exit("main")
    machine.actions(after=100)
    assert machine.lifecycle.phase == "Succeeded"


def test_a_container_that_waits_for_something_tries_again() -> None:
    machine = begun()
    machine.lifecycle.deferred(
        "main", reason="CreateContainerConfigError", message='secret "s" not found', now=machine.now
    )
    assert machine.actions().wake_at == at(1)
    [shown] = machine.status()["containerStatuses"]
    assert shown["state"]["waiting"] == {"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}
    assert machine.status()["phase"] == "Pending"
    assert machine.actions(after=1).start == ["main"]
    machine.start("main")
    assert machine.lifecycle.containers["main"].restarts == 0


def test_a_restart_that_has_to_wait_is_counted_once() -> None:
    machine = begun(restartPolicy="Always")
    machine.run_and_exit("main", 1)
    for _ in range(3):
        assert machine.actions(after=1).start == ["main"]
        machine.lifecycle.deferred("main", reason="CreateContainerConfigError", message="", now=machine.now)
    machine.actions(after=1)
    machine.start("main")
    [shown] = machine.status()["containerStatuses"]
    assert shown["restartCount"] == 1
    assert shown["lastState"]["terminated"]["exitCode"] == 1


def test_a_container_that_cannot_be_started_fails_the_pod_and_stops_the_others() -> None:
    machine = begun(**TWO, restartPolicy="Always")
    machine.start("a")
    machine.lifecycle.fail("ImageEntrypointUnknown", "no command", container="b")
    assert machine.actions().terminate == ["a"]
    machine.exit("a", 143)
    machine.actions()
    status = machine.status()
    assert machine.lifecycle.finished
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "ImageEntrypointUnknown", "no command")
    assert status["containerStatuses"][1]["state"]["waiting"]["reason"] == "ImageEntrypointUnknown"


def restarted(machine: Machine) -> Machine:
    """The same pod after a restart of the server: nothing but the recorded status is left."""
    again = Machine(status=machine.status(), **machine.pod["spec"])
    again.now = machine.now
    return again


def test_a_lost_container_fails_the_pod_that_may_not_restart() -> None:
    again = restarted(running(restartPolicy="Never"))
    assert again.actions().start == []
    terminated = again.status()["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, LOST_REASON)
    assert "embedded cluster stopped" in terminated["message"]
    assert terminated["startedAt"] == "2026-11-20T12:00:00Z"
    assert again.status()["phase"] == "Failed"


def test_a_lost_container_restarts_in_place_where_it_may() -> None:
    machine = begun(restartPolicy="OnFailure", initContainers=[{"name": "one"}])
    machine.run_and_exit("one")
    machine.start("main")
    again = restarted(machine)
    again.actions()
    assert again.actions(after=1).start == ["main"], "what init containers did is still there"
    again.start("main")
    [shown] = again.status()["containerStatuses"]
    assert (shown["restartCount"], shown["lastState"]["terminated"]["exitCode"]) == (1, 137)


def test_a_restart_that_was_due_goes_on_after_a_restart_of_the_server() -> None:
    machine = begun(restartPolicy="OnFailure")
    machine.run_and_exit("main", 1)
    again = restarted(machine)
    assert again.actions(after=1).start == ["main"]
    assert again.lifecycle.containers["main"].restarts == 1


def test_a_damaged_status_is_survived() -> None:
    status = {"startTime": "yesterday", "containerStatuses": [{"name": "other"}, {"name": "main", "state": None}]}
    assert Machine(status=status).actions().start == ["main"]


SIDECARS = [{"name": "one", "restartPolicy": "Always"}, {"name": "two", "restartPolicy": "Always"}]


def with_sidecars(**spec: Any) -> Machine:
    machine = begun(initContainers=SIDECARS, **spec)
    for name in ("one", "two", "main"):
        machine.start(name)
        machine.actions()
    return machine


def test_a_sidecar_holds_back_what_follows_until_its_startup_probe_succeeds() -> None:
    machine = begun(initContainers=SIDECARS[:1])
    machine.lifecycle.running("one", at=machine.now, started=False)
    assert machine.actions().start == []
    assert machine.condition("Initialized")["message"] == "containers with incomplete status: [one]"
    assert machine.lifecycle.probed("one", started=True)
    assert machine.actions().start == ["main"]


def test_a_sidecar_that_is_down_does_not_keep_main_containers_from_restarting() -> None:
    machine = with_sidecars(restartPolicy="Always")
    machine.exit("one", 1)
    machine.exit("main", 1)
    machine.actions()
    assert machine.actions(after=1).start == ["one", "main"]


def test_sidecars_end_after_the_main_containers_the_last_one_first() -> None:
    machine = with_sidecars()
    machine.lifecycle.delete(grace=30, now=machine.now)
    for name in ("main", "two", "one"):
        assert machine.actions().terminate == [name]
        machine.exit(name, 143)
    assert machine.lifecycle.finished


def test_the_grace_period_ends_for_sidecars_too() -> None:
    machine = with_sidecars()
    machine.lifecycle.delete(grace=30, now=machine.now)
    machine.actions()
    assert sorted(machine.actions(after=30).kill) == ["main", "one", "two"]


def test_a_stopped_container_ends_with_grace_and_restarts_by_the_policy() -> None:
    machine = begun(**TWO, restartPolicy="Always")
    machine.start("a", "b")
    assert machine.lifecycle.stop_container("a", "because", now=machine.now, grace=5)
    assert not machine.lifecycle.stop_container("a", "again", now=machine.now), "nothing new"
    actions = machine.actions()
    assert (actions.terminate, actions.kill, actions.wake_at) == (["a"], [], at(5))
    assert machine.actions(after=5).kill == ["a"]
    machine.exit("a", 137)
    machine.actions()
    assert machine.actions(after=1).start == ["a"]
    machine.start("a")
    assert (machine.actions().terminate, machine.lifecycle.containers["a"].stop_message) == ([], "")
    assert machine.lifecycle.stop_container("a", "once more", now=machine.now, grace=5)
    assert machine.actions().terminate == ["a"]


def test_a_stopped_container_fails_the_pod_that_may_not_restart() -> None:
    machine = running(restartPolicy="Never")
    machine.lifecycle.stop_container("main", "because", now=machine.now)
    machine.actions()
    machine.exit("main", 143)
    machine.actions()
    assert (machine.lifecycle.phase, machine.lifecycle.finished) == ("Failed", True)


def test_a_deletion_may_shorten_the_time_of_a_stopped_container() -> None:
    machine = running(restartPolicy="Always")
    machine.lifecycle.stop_container("main", "because", now=machine.now, grace=60)
    machine.actions()
    machine.lifecycle.delete(grace=1, now=machine.now)
    assert machine.actions(after=1).kill == ["main"]


def test_what_waited_for_a_sidecar_need_not_wait_again_after_a_restart_of_the_server() -> None:
    again = restarted(with_sidecars(restartPolicy="Always"))
    again.actions()
    assert again.actions(after=1).start == ["one", "two", "main"]


def test_back_off_is_visible_with_the_last_termination() -> None:
    machine = begun(restartPolicy="OnFailure")
    machine.run_and_exit("main", 3)
    [shown] = machine.status()["containerStatuses"]
    assert shown["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert shown["state"]["waiting"]["message"] == "back-off 1s restarting failed container=main pod=p_ns(u)"
    assert shown["lastState"]["terminated"]["exitCode"] == 3
    assert (shown["restartCount"], shown["ready"], shown["started"]) == (0, False, False)
    assert shown["lastState"]["terminated"]["containerID"] == shown["containerID"] == "process://u/main/0"


def test_a_pod_is_not_ready_while_one_of_its_containers_waits_for_its_restart() -> None:
    """Which is what Jobs and JobSets count."""
    machine = begun(**TWO, restartPolicy="OnFailure")
    machine.start("a")
    machine.run_and_exit("b", 1)
    assert (machine.status()["phase"], machine.condition("Ready")["status"]) == ("Running", "False")
    assert machine.condition("Ready")["message"] == "containers with unready status: [b]"
    machine.now += timedelta(seconds=1)
    assert machine.actions().start == ["b"]
    machine.start("b")
    assert machine.condition("Ready")["status"] == "True"
    [_, shown] = machine.status()["containerStatuses"]
    assert (shown["restartCount"], shown["containerID"]) == (1, "process://u/b/1")
    assert shown["lastState"]["terminated"]["containerID"] == "process://u/b/0"


def test_conditions_of_a_running_pod() -> None:
    machine = begun(**TWO)
    machine.start("a")
    message = "containers with unready status: [b]"
    assert machine.condition("ContainersReady")["message"] == message
    assert machine.condition("Ready") | {"lastTransitionTime": ""} == {
        "type": "Ready",
        "status": "False",
        "reason": "ContainersNotReady",
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": "",
    }
    machine.start("b")
    machine.now += timedelta(seconds=5)
    ready = machine.condition("Ready")
    assert (ready["status"], ready["lastTransitionTime"]) == ("True", "2026-11-20T12:00:05Z")
    machine.now += timedelta(seconds=5)
    assert machine.condition("Ready") == ready, "a condition that stays keeps its time"
    assert machine.condition("PodScheduled")["status"] == "True"


def test_conditions_and_fields_of_others_stay() -> None:
    theirs = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    machine = begun(status={"conditions": [theirs], "qosClass": "BestEffort", "phase": "Pending"})
    assert theirs in machine.status()["conditions"]
    assert machine.status()["qosClass"] == "BestEffort"


def test_readiness_gates_hold_back_ready() -> None:
    machine = running(readinessGates=[{"conditionType": "example.com/gate"}])
    assert machine.condition("ContainersReady")["status"] == "True"
    assert machine.condition("Ready")["reason"] == "ReadinessGatesNotReady"
    machine.pod["status"]["conditions"].append({"type": "example.com/gate", "status": "True"})
    assert machine.condition("Ready")["status"] == "True"


def test_readiness_is_what_the_probe_says() -> None:
    machine = begun()
    machine.lifecycle.running("main", at=machine.now, ready=False)
    assert machine.condition("Ready")["status"] == "False"
    assert machine.lifecycle.probed("main", ready=True)
    assert not machine.lifecycle.probed("main", ready=True), "nothing new"
    assert machine.condition("Ready")["status"] == "True"
    assert machine.lifecycle.probed("main", ready=False)
    [shown] = machine.status()["containerStatuses"]
    assert (shown["ready"], shown["started"]) == (False, True)
