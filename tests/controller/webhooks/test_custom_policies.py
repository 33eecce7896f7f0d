"""Policies called `custom`, as whoever writes a runtime meets them: through an API server, with kubectl."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel, Field
from support.admission import Requests, accepted, admitting
from support.commands import eventually
from support.objects import runtime_object
from support.stack import Stack, api_server

from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject

RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainingruntimes"
CLUSTER_RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"


class Stage(BaseModel):
    name: str
    gpus: int = Field(default=0, ge=0)


class Pipeline(BaseModel):
    stages: list[Stage]


class Pipelines:
    name = "pipelines"
    ml_policy_config = Pipeline

    def enforce_ml_policy(self, info: Info, config: Pipeline) -> None:
        info.labels["stages"] = ".".join(stage.name for stage in config.stages)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(home: Path) -> AsyncIterator[Stack]:
    async with api_server(home) as stack:
        yield stack


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def requests(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Requests]:
    framework = Framework([*load_plugins(), Pipelines()])
    async with admitting(stack, tmp_path_factory.mktemp("serving"), framework=framework) as requests:
        probe = runtime("probe", {"stages": []})
        await eventually(lambda: accepted(requests, "POST", RUNTIMES, probe, dry=True))
        yield requests


def runtime(name: str, config: Any, *, plugin: str = "pipelines", kind: str = "TrainingRuntime") -> JsonObject:
    obj = runtime_object(policy={"custom": {"name": plugin, "config": config}})
    return {**obj, "kind": kind, "metadata": {"name": name, "labels": obj["metadata"]["labels"]}}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("path", "kind"), [(RUNTIMES, "TrainingRuntime"), (CLUSTER_RUNTIMES, "ClusterTrainingRuntime")]
)
async def test_what_the_plugin_does_not_take_is_refused_by_field(requests: Requests, path: str, kind: str) -> None:
    config = {"stages": [{"nam": "a"}, {"name": "b", "gpus": -1}]}
    refused = await requests.send("POST", path, runtime("wrong", config, kind=kind))
    assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
    assert refused.message == (
        f'admission webhook "validator.{kind.lower()}.trainer.kubeflow.org" denied the request: '
        "[spec.mlPolicy.custom.config.stages[0].name: Required value, spec.mlPolicy.custom.config.stages[1].gpus: "
        "Invalid value: -1: Input should be greater than or equal to 0]"
    )
    assert (await requests.send("POST", path, runtime("fine", {"stages": [{"name": "a"}]}, kind=kind))).code == 201
    merge = {"spec": {"mlPolicy": {"custom": {"config": {"stages": "all"}}}}}
    refused = await requests.send("PATCH", f"{path}/fine", merge, kind="application/merge-patch+json")
    assert refused.message.endswith(
        'spec.mlPolicy.custom.config.stages: Invalid value: "all": Input should be a valid list'
    )


async def test_one_that_no_plugin_serves_is_stored_as_it_is_with_a_warning(requests: Requests) -> None:
    config = {"deep": [{"any": {"thing": None}}, 1.5, "x"], "empty": {}, "list": []}
    stored = await requests.send("POST", RUNTIMES, runtime("early", config, plugin="pipeline"))
    assert stored.code == 201
    assert stored.body["spec"]["mlPolicy"]["custom"] == {"name": "pipeline", "config": config}
    assert stored.warnings == [
        (
            "spec.mlPolicy.custom.name: no plugin of the name 'pipeline' is loaded (did you mean \"pipelines\"?); "
            "until one serves it, TrainJobs of this runtime are not built"
        )
    ]


async def test_its_trainjobs_are_built_with_it_by_way_of_the_snapshot(requests: Requests) -> None:
    await requests.send("POST", RUNTIMES, runtime("used", {"stages": [{"name": "a"}, {"name": "b", "gpus": 1}]}))
    spec = {"runtimeRef": {"name": "used", "kind": "TrainingRuntime"}, "suspend": True}
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "j"}, "spec": spec}
    created = await requests.send("POST", TRAINJOBS, job)
    assert created.code == 201, created.message
    jobset = await eventually(lambda: accepted(requests, "GET", f"{JOBSETS}/j"))
    assert jobset.body["metadata"]["labels"]["stages"] == "a.b"
    snapshot = await requests.send("GET", "/api/v1/namespaces/default/configmaps/j-runtime-snapshot")
    assert "name: pipelines" in snapshot.body["data"]["runtime"]


@pytest.mark.nightly
@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH")
@pytest.mark.parametrize("policy", ["mlPolicy", "podGroupPolicy"])
async def test_kubectl_explains_them(stack: Stack, home: Path, policy: str) -> None:
    if stack.cluster is None:
        pytest.skip("a real cluster may have other definitions")
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "--kubeconfig", str(home / "cluster/kubeconfig"), "--cache-dir", str(home / "cache")),
        *("explain", f"trainingruntime.spec.{policy}.custom"),
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
    )
    explained = " ".join((await process.communicate())[0].decode().split())
    assert "by a plugin that is installed beside Trainmaster's own" in explained
    assert "name <string> -required-" in explained
    assert "config <Object>" in explained or "config <object>" in explained
    assert "by the name of its entry point" in explained
