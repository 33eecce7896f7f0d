"""Failures of pods that are gone, by what the manager told of them."""

from __future__ import annotations

import pytest
from support.pod_views import node, pod, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.told import told_by_manager


@pytest.mark.parametrize(
    ("reason", "line", "cause"),
    [
        (
            "OOMKilled",
            "rank 1 (pod p, container node) failed at T with exit code 137 (OOMKilled: x)",
            Cause.OUT_OF_MEMORY,
        ),
        (
            "Error",
            "rank 1 (pod p, container node) failed at T with exit code 1: gaierror: Name or service not known",
            Cause.NAME_RESOLUTION_FAILED,
        ),
        (
            "Error",
            "dataset-initializer (pod p, container dataset-initializer) failed with exit code 1: x",
            Cause.INIT_CONTAINER_FAILED,
        ),
        ("Error", "rank 1 (pod p, container node) failed with exit code 3: ValueError: no", Cause.CONTAINER_FAILED),
    ],
)
def test_of_pods_that_are_gone_the_condition_tells(reason: str, line: str, cause: Cause) -> None:
    message = f"attempt 0: older\nattempt 1: {line}"
    condition = {"type": "ContainerFailed", "status": "True", "reason": reason, "message": message}
    (finding,) = told_by_manager(view(pod(0), conditions=[condition], nodes=[node()]))
    assert finding.cause is cause
    assert finding.evidence[0].text.endswith(line.removeprefix("rank 1 "))
