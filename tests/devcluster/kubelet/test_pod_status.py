"""The status of a pod: its conditions and container statuses, from the state of its lifecycle."""

from __future__ import annotations

from datetime import timedelta

from support.podlifecycle import Machine, running, two


def test_back_off_is_visible_with_the_last_termination() -> None:
    machine = Machine(restartPolicy="OnFailure")
    machine.actions()
    machine.run_and_exit("main", 3)
    [shown] = machine.status()["containerStatuses"]
    assert shown["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert shown["state"]["waiting"]["message"] == "back-off 1s restarting failed container=main pod=p_ns(u)"
    assert shown["lastState"]["terminated"]["exitCode"] == 3
    assert (shown["restartCount"], shown["ready"], shown["started"]) == (0, False, False)
    assert shown["lastState"]["terminated"]["containerID"] == shown["containerID"] == "process://u/main/0"


def test_a_pod_is_not_ready_while_one_of_its_containers_waits_for_its_restart() -> None:
    """Which is what Jobs and JobSets count."""
    machine = two(restartPolicy="OnFailure")
    machine.actions()
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
    machine = two()
    machine.actions()
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
    machine = Machine(status={"conditions": [theirs], "qosClass": "BestEffort", "phase": "Pending"})
    machine.actions()
    assert theirs in machine.status()["conditions"]
    assert machine.status()["qosClass"] == "BestEffort"


def test_readiness_gates_hold_back_ready() -> None:
    machine = running(readinessGates=[{"conditionType": "example.com/gate"}])
    assert machine.condition("ContainersReady")["status"] == "True"
    assert machine.condition("Ready")["reason"] == "ReadinessGatesNotReady"
    machine.pod["status"]["conditions"].append({"type": "example.com/gate", "status": "True"})
    assert machine.condition("Ready")["status"] == "True"


def test_readiness_is_what_the_probe_says() -> None:
    machine = Machine()
    machine.actions()
    machine.lifecycle.running("main", at=machine.now, ready=False)
    assert machine.condition("Ready")["status"] == "False"
    assert machine.lifecycle.probed("main", ready=True)
    assert not machine.lifecycle.probed("main", ready=True), "nothing new"
    assert machine.condition("Ready")["status"] == "True"
    assert machine.lifecycle.probed("main", ready=False)
    [shown] = machine.status()["containerStatuses"]
    assert (shown["ready"], shown["started"]) == (False, True)


def test_a_container_that_has_not_started_up_is_not_ready() -> None:
    machine = Machine()
    machine.actions()
    machine.lifecycle.running("main", at=machine.now, started=False)
    [shown] = machine.status()["containerStatuses"]
    assert (shown["ready"], shown["started"]) == (False, False)
    assert "running" in shown["state"]
