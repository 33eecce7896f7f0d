"""The order of plugins and of what they build."""

from __future__ import annotations

import random

import orjson
import pytest
from support.objects import replicated_job, runtime, trainjob

from trainmaster.runtime.api.constants import LAUNCHER, NODE
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.resolver import resolve

_MPI = runtime(
    replicated_job(LAUNCHER, containers=[{"name": NODE, "image": "train:1"}]),
    replicated_job(NODE, ancestor=None),
    policy={"mpi": {"mpiImplementation": "OpenMPI", "runLauncherAsNode": True}},
)
_TORCH = runtime(policy={"torch": {}, "numNodes": 2})


@pytest.mark.defect("B28")
@pytest.mark.parametrize("on", [_MPI, _TORCH], ids=["mpi", "torch"])
def test_the_order_in_which_plugins_are_found_changes_nothing(on: object) -> None:
    """But for the random keys in Secrets, every process builds the same bytes."""
    built = set()
    for seed in range(10):
        plugins = list(load_plugins())
        random.Random(seed).shuffle(plugins)
        objects = resolve(trainjob(), on, Framework(plugins)).objects  # type: ignore[arg-type]
        built.add(orjson.dumps([each.object for each in objects if each.identity[1] != "Secret"]))
    assert len(built) == 1


@pytest.mark.defect("B28")
def test_what_pods_mount_comes_before_the_pods() -> None:
    kinds = [desired.identity[1] for desired in resolve(trainjob(), _MPI, Framework(load_plugins())).objects]
    assert sorted(kinds) == ["ConfigMap", "JobSet", "Secret"]
    assert kinds[-1] == "JobSet"
