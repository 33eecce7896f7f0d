"""The rules of faults: which requests are struck."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.testing.faults import CloseWatch, Delay, FaultInvalid, FaultRequest, Faults


def _request(**parts: str) -> FaultRequest:
    usual = {
        "verb": "get",
        "group": "",
        "resource": "configmaps",
        "kind": "ConfigMap",
        "subresource": "",
        "namespace": "default",
        "name": "a",
        "user_agent": "kubectl/v1.33",
    }
    return FaultRequest(**{**usual, **parts})


@pytest.mark.parametrize(
    ("rule", "struck"),
    [
        ({}, True),
        ({"verb": "list,get"}, True),
        ({"verb": "list"}, False),
        ({"resource": "configmaps", "group": ""}, True),
        ({"group": "batch"}, False),
        ({"kind": "Secret"}, False),
        ({"subresource": "status"}, False),
        ({"namespace": "default", "name": "a"}, True),
        ({"namespace": "other"}, False),
        ({"name": "b"}, False),
        ({"user_agent": "kubectl"}, True),
        ({"user_agent": "trainmaster"}, False),
    ],
)
def test_rules_say_which_requests_are_struck(rule: dict[str, str], struck: bool) -> None:
    faults = Faults()
    fault = faults.add(Delay(1), **rule)
    assert bool(faults.striking(_request())) is struck
    assert (fault.seen, fault.count) == (struck, struck)


def test_one_request_or_the_first_ones_can_be_chosen() -> None:
    faults = Faults()
    second, first_two = faults.add(Delay(1), nth=2), faults.add(Delay(2), times=2)
    struck = [faults.striking(_request()) for _ in range(4)]
    assert struck == [[first_two], [second, first_two], [], []]
    assert (second.seen, second.count, first_two.count) == (4, 1, 2)


def test_what_is_random_can_be_repeated() -> None:
    def run(seed: int) -> list[bool]:
        faults = Faults()
        faults.add(Delay(1), probability=0.5, seed=seed)
        return [bool(faults.striking(_request())) for _ in range(64)]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert 16 < sum(run(1)) < 48


def test_a_removed_fault_strikes_no_more() -> None:
    faults = Faults()
    with faults.add(Delay(1)):
        assert faults.active
    assert not faults.active
    assert faults.striking(_request()) == []


def test_faults_of_watches_leave_other_requests_alone() -> None:
    faults = Faults()
    faults.add(CloseWatch())
    assert faults.striking(_request(verb="list")) == []
    assert faults.striking(_request(verb="watch")) != []


@pytest.mark.parametrize(
    "described",
    [
        {},
        {"action": {"type": "explode"}},
        {"action": {"type": "delay"}},
        {"action": {"type": "delay", "seconds": -1}},
        {"action": {"type": "refuse", "code": 200}},
        {"action": {"type": "reset", "when": "never"}},
        {"action": {"type": "delay", "seconds": 1}, "rule": {"colour": "red"}},
        {"action": {"type": "delay", "seconds": 1}, "rule": {"probability": 2}},
        {"action": {"type": "delay", "seconds": 1}, "rules": {}},
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(described: dict[str, Any]) -> None:
    faults = Faults()
    with pytest.raises(FaultInvalid):
        faults.add_described(described)
    assert not faults.active
