"""The order of plugins and of what they build, and their complaints, word for word as the original's."""

from __future__ import annotations

import json
import random

import orjson
import pytest
from support.golden import load_yaml, recorded_cases
from support.objects import replicated_job, runtime, trainjob
from support.resolutions import field_errors

from trainmaster.runtime.api import parse_runtime, parse_trainjob
from trainmaster.runtime.api.constants import LAUNCHER, NODE
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject
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


CASES = [
    "062-tj-create-torch-reserved",
    "064-tj-create-torch-injection-missing",
    "065-tj-create-mpi-ok",
    "070-tj-create-jax-names-free",
    "077-tj-create-volcano-empty-queue",
    "071-tj-create-flux-installer",
    "076-tj-create-flux-no-nodes",
    "081-tj-create-tune-ok",
    "085-tj-create-tune-70b-nodes-lora",
    "086-tj-create-tune-qlora-distributed",
    "088-tj-create-tune-qlora-qwen",
    "089-tj-create-tune-immutable-args",
    "090-tj-create-tune-many-errors",
]


@pytest.mark.parametrize("name", CASES)
def test_complaints_are_those_of_the_original(name: str) -> None:
    case: JsonObject = load_yaml(recorded_cases("admission")[name])
    (runtime,) = case["given"]
    found = field_errors(parse_trainjob(case["request"]["create"]), parse_runtime(runtime))
    _, denied, recorded = case["expect"].get("message", "").partition(" denied the request: ")
    assert case["expect"]["allowed"] is not bool(denied)
    texts = sorted(map(shown, found))  # the recorder sorts the parts, whose order was chance
    assert recorded == (texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else "")


def shown(error: FieldError) -> str:
    """A error as the API server's libraries write it."""
    return f"{error.path}: {error.type} value: {json.dumps(error.value, separators=(',', ':'))}: {error.detail}"
