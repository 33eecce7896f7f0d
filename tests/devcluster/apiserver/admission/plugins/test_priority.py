"""The Priority plugin: from a class to a number."""

from __future__ import annotations

from typing import Any

import pytest
from support.apiserver import create_pod, refusal

from trainmaster.devcluster.apiserver.bootstrap import add_system_priority_classes
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import PODS, PRIORITY_CLASSES
from trainmaster.devcluster.testing.stepper import Stepper


async def priority_class(cluster: Stepper, name: str, value: int, **fields: Any) -> None:
    await cluster.api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value, **fields})


async def test_a_class_becomes_a_priority(cluster: Stepper) -> None:
    await priority_class(cluster, "high", 100, preemptionPolicy="Never")
    created = await create_pod(cluster, priorityClassName="high")
    assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (100, "Never")
    # Clients send what they first wrote; what was resolved stays.
    spec = {key: value for key, value in created["spec"].items() if key not in ("priority", "preemptionPolicy")}
    updated = await cluster.api.update(PODS, {**created, "spec": spec})
    assert updated["spec"] == created["spec"]


async def test_without_a_class_the_default_counts(cluster: Stepper) -> None:
    assert (await create_pod(cluster, "a"))["spec"]["priority"] == 0
    await priority_class(cluster, "usual", 7, globalDefault=True)
    created = await create_pod(cluster, "b")
    assert (created["spec"]["priority"], created["spec"]["priorityClassName"]) == (7, "usual")


async def test_an_unknown_class_is_refused(cluster: Stepper) -> None:
    with pytest.raises(StatusError) as caught:
        await create_pod(cluster, priorityClassName="high")
    assert refusal(caught) == (403, 'pods "p" is forbidden: no PriorityClass with name high was found')


async def test_nobody_gives_himself_a_priority(cluster: Stepper) -> None:
    with pytest.raises(StatusError) as caught:
        await create_pod(cluster, priority=10)
    assert refusal(caught) == (
        403,
        (
            'pods "p" is forbidden: the integer value of priority (10) must not be provided in pod spec; '
            "priority admission controller computed 0 from the given PriorityClass name"
        ),
    )


async def test_rules_of_priority_classes(cluster: Stepper) -> None:
    assert (await create_pod(cluster, priorityClassName="system-node-critical"))["spec"]["priority"] == 2_000_001_000
    await priority_class(cluster, "usual", 7, globalDefault=True)
    with pytest.raises(StatusError, match="PriorityClass usual is already marked as default"):
        await priority_class(cluster, "other", 8, globalDefault=True)
    with pytest.raises(StatusError, match="maximum allowed value of a user defined priority is 1000000000"):
        await priority_class(cluster, "huge", 1_000_000_001)
    with pytest.raises(StatusError, match="system-mine is not a known system priority class"):
        await priority_class(cluster, "system-mine", 1)
    await add_system_priority_classes(cluster.api)  # a restart changes nothing
