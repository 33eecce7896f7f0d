"""The RuntimeClass plugin: overhead and scheduling of pods."""

from __future__ import annotations

import pytest
from support.apiserver import create_pod, refusal

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import RUNTIME_CLASSES
from trainmaster.devcluster.testing.stepper import Stepper
from trainmaster.runtime.resource_requirements import pod_requests


async def test_a_runtime_class_adds_what_its_pods_need(cluster: Stepper) -> None:
    toleration = {"key": "sandbox", "operator": "Exists"}
    body = {
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"sandbox": "yes"}, "tolerations": [toleration]},
    }
    await cluster.api.create(RUNTIME_CLASSES, body)
    spec = (await create_pod(cluster, runtimeClassName="kata", resources={"requests": {"cpu": "1"}}))["spec"]
    assert spec["overhead"] == {"cpu": "250m"}
    assert str(pod_requests(spec)["cpu"]) == "1250m"
    assert spec["nodeSelector"] == {"sandbox": "yes"}
    assert toleration in spec["tolerations"]
    with pytest.raises(StatusError, match=r"conflict: runtimeClass\.scheduling\.nodeSelector\[sandbox\] = yes"):
        await create_pod(cluster, "q", runtimeClassName="kata", nodeSelector={"sandbox": "no"})
    with pytest.raises(StatusError, match="Pod's Overhead doesn't match RuntimeClass's defined Overhead"):
        await create_pod(cluster, "q", runtimeClassName="kata", overhead={"cpu": "1"})


async def test_unknown_runtime_classes_are_refused(cluster: Stepper) -> None:
    with pytest.raises(StatusError) as caught:
        await create_pod(cluster, runtimeClassName="kata")
    assert refusal(caught) == (403, 'pods "p" is forbidden: pod rejected: RuntimeClass "kata" not found')
    with pytest.raises(StatusError, match="Pod Overhead set without corresponding RuntimeClass defined Overhead"):
        await create_pod(cluster, overhead={"cpu": "1"})
