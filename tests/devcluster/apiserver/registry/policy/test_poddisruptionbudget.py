"""PodDisruptionBudgets at the API."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import POD_DISRUPTION_BUDGETS
from trainmaster.devcluster.testing.stepper import Stepper
from trainmaster.runtime.jsontree import JsonObject


async def made(cluster: Stepper, **spec: Any) -> JsonObject:
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "p"}, "spec": spec}
    return await cluster.api.create(POD_DISRUPTION_BUDGETS, body, namespace="default")


async def test_a_new_budget_allows_nothing(cluster: Stepper) -> None:
    assert (await made(cluster, maxUnavailable=1))["status"]["disruptionsAllowed"] == 0


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"minAvailable": 1, "maxUnavailable": 1}, "minAvailable and maxUnavailable cannot be both set"),
        ({"minAvailable": "101%"}, 'spec.minAvailable: Invalid value: "101%": must not be greater than 100%'),
        ({"maxUnavailable": -1}, "spec.maxUnavailable: Invalid value: -1: must be greater than or equal to 0"),
        ({"unhealthyPodEvictionPolicy": "Never"}, 'supported values: "AlwaysAllow", "IfHealthyBudget"'),
        ({"selector": {"matchLabels": {"a b": "c"}}}, "spec.selector.matchLabels: Invalid value"),
    ],
)
async def test_what_makes_no_sense_is_refused(cluster: Stepper, spec: JsonObject, problem: str) -> None:
    with pytest.raises(StatusError) as caught:
        await made(cluster, **spec)
    assert caught.value.code == 422
    assert problem in caught.value.message
