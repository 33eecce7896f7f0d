"""The Node object."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from trainmaster.devcluster.kubelet.node_status import host_capacity, is_ready, node_object, with_readiness
from trainmaster.runtime.quantity import Quantity

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 11, 20, 13, 0, tzinfo=UTC)


def test_gpus_are_listed_only_where_they_are() -> None:
    assert "nvidia.com/gpu" not in host_capacity(Path(), gpus=0)
    assert host_capacity(Path(), gpus=2)["nvidia.com/gpu"] == "2"


def test_pods_may_ask_for_the_disk_that_their_files_are_on(tmp_path: Path) -> None:
    """As the launchers of MPIJobs do. The directory of the pods is made later than the node."""
    told = host_capacity(tmp_path / "not" / "there" / "yet", gpus=0)["ephemeral-storage"]
    assert Quantity.parse(told) == Quantity.parse(shutil.disk_usage(tmp_path).total // 1024 * 1024)


def test_readiness_keeps_what_others_wrote_and_its_own_time() -> None:
    wanted = node_object("n", capacity={"cpu": "2"})
    theirs = {"type": "Custom", "status": "True"}
    node = with_readiness({"metadata": {}, "status": {"conditions": [theirs]}}, wanted=wanted, now=NOW)
    assert is_ready(node, wanted=wanted)
    again = with_readiness(node, wanted=wanted, now=LATER)
    custom, ready = again["status"]["conditions"]
    assert custom == theirs
    assert (ready["lastTransitionTime"], ready["lastHeartbeatTime"]) == ("2026-11-20T12:00:00Z", "2026-11-20T13:00:00Z")
    assert not is_ready(again, wanted=node_object("n", capacity={"cpu": "4"}))
