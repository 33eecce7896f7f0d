"""Containers that cannot be created as they are written, in the kubelet's words."""

from __future__ import annotations

import pytest
from support.pod_views import event, pod, view, waiting

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.container_config import container_config_error


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ('secret "token" not found', "create the Secret token in the namespace ns"),
        ("couldn't find key HF_TOKEN in Secret ns/token", "put the key HF_TOKEN into the Secret token"),
        ("container has runAsNonRoot and image will run as root", "correct what the message names"),
    ],
)
def test_what_is_missing_and_where(message: str, advice: str) -> None:
    (finding,) = container_config_error(view(pod(**waiting("CreateContainerConfigError", message))))
    assert finding.cause is Cause.CONTAINER_CONFIG_ERROR
    assert message in finding.evidence[0].text
    assert advice in finding.what_next[0]


def test_a_volume_that_cannot_be_mounted_otherwise_is_another_cause() -> None:
    told = [event("Pod", "t-node-0-0", "FailedMount", "MountVolume.SetUp failed: mount.nfs: Connection timed out")]
    assert not list(container_config_error(view(pod(**waiting("ContainerCreating")), events=told)))
    note = 'MountVolume.SetUp failed for volume "cfg" : configmap "settings" not found'
    told = [event("Pod", "t-node-0-0", "FailedMount", note)]
    (finding,) = container_config_error(view(pod(**waiting("ContainerCreating")), events=told))
    assert "create the ConfigMap settings" in finding.what_next[0]
    assert not list(container_config_error(view(pod(phase="Running"), events=told))), "it came in the meantime"
