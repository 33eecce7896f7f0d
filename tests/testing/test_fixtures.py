"""The fixtures for tests of plugins: there wherever we are installed, and nothing that anybody notices."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from support.commands import wait_until

from trainmaster.devcluster.apiserver.filters.authorization import VARIABLE
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.sdk import Desired, Info, Listers, TrainJob, Watch, env_value, upsert_env
from trainmaster.runtime.testing import Subject, runtime, trainjob
from trainmaster.testing.conformance import survives_definitions, uses_its_rights
from trainmaster.testing.embedded import EmbeddedCluster

JOBSET = ("jobset.x-k8s.io/v1alpha2", "JobSet")
TRAINJOB = ("trainer.kubeflow.org/v1alpha1", "TrainJob")


class Region:
    name = "region"

    def __init__(self, region: str = "eu") -> None:
        self._region = region

    def watch_extension(self) -> list[Watch]:
        return [Watch("v1", "ConfigMap", "configmaps", writes=True)]

    def enforce_pod_spec(self, info: Info, job: TrainJob) -> None:
        for pods in info.pod_sets:
            for container in pods.pod_spec.get("containers") or []:
                upsert_env(container, [env_value("REGION", self._region)])

    def build(self, job: TrainJob) -> Iterator[Desired]:
        metadata = {"name": f"{job.metadata.name}-region"}
        yield Desired({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"is": self._region}})


def test_pytest_finds_them_where_we_are_installed() -> None:
    (point,) = (each for each in entry_points(group="pytest11") if each.name == "trainmaster")
    assert point.value == "trainmaster.testing.fixtures"


@pytest.mark.nightly
def test_having_us_installed_costs_nobody_an_import() -> None:
    """Everybody's pytest loads the fixtures, also where no test wants them."""
    program = (
        "import sys, pytest; before = set(sys.modules); import trainmaster.testing.fixtures;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) <= {"trainmaster", "trainmaster.testing", "trainmaster.testing.fixtures"}


def test_a_framework_has_the_built_in_plugins_and_those_given(trainmaster_framework: Callable[..., Framework]) -> None:
    assert {"region", "torch", "jobset"} <= set(trainmaster_framework(Region).names())
    assert "jax" in trainmaster_framework("jax").names()
    assert trainmaster_framework(Region("us")).names() == trainmaster_framework(Region, region="us").names()


def test_a_manager_with_the_plugin_runs_on_the_api_server(
    trainmaster_api_server: EmbeddedCluster, trainmaster_framework: Callable[..., Framework]
) -> None:
    server = trainmaster_api_server
    server.apply(runtime())
    with server.manager(trainmaster_framework(Region("us"))):
        server.apply(trainjob("demo", trainer={"numNodes": 2}))
        (job,) = server.wait_for_object(*JOBSET, "demo", "team")["spec"]["replicatedJobs"]
        assert job["template"]["spec"]["template"]["spec"]["containers"][0]["env"] == [env_value("REGION", "us")]
        # What others change is changed back: the manager is a whole one.
        changed = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "demo-region", "namespace": "team"}}
        server.wait_for_object("v1", "ConfigMap", "demo-region", "team")
        server.apply({**changed, "data": {"is": "mine"}})

        def is_back() -> bool:
            config_map = server.get("v1", "ConfigMap", "demo-region", "team")
            return config_map is not None and config_map["data"]["is"] == "us"

        server.wait_for(is_back, "the ConfigMap as the plugin builds it")
    assert [each["metadata"]["name"] for each in server.list(*JOBSET)] == ["demo"]
    server.delete(*JOBSET, "demo", "team")
    assert server.get(*JOBSET, "demo", "team") is None
    assert server.get("acme.dev/v1", "Nothing", "demo") is None
    assert server.kubeconfig.is_file()


def test_delays_are_told_with_the_conditions(tmp_path: Any, trainmaster_framework: Callable[..., Framework]) -> None:
    class Failing(Region):
        def build(self, job: TrainJob) -> Iterator[Desired]:
            raise KeyError("region")

    with EmbeddedCluster(tmp_path, patience=1) as server, server.manager(trainmaster_framework(Failing)):
        server.apply(runtime(), trainjob("demo"))
        wait_until(lambda: ((server.get(*TRAINJOB, "demo", "team") or {}).get("status") or {}).get("conditions"))
        with pytest.raises(AssertionError) as caught:
            server.wait_for_object(*JOBSET, "demo", "team")
    assert "waited 1 seconds for JobSet demo, in vain" in str(caught.value)
    assert "TrainJob demo: Blocked=True plugin region failed in build: KeyError: 'region'" in str(caught.value)


def test_a_test_plays_the_part_of_the_workloads_controller(
    trainmaster_api_server: EmbeddedCluster, trainmaster_framework: Callable[..., Framework]
) -> None:
    server = trainmaster_api_server
    server.apply(runtime())
    with server.manager(trainmaster_framework(Region)):
        server.apply(trainjob("demo"))
        jobset = server.wait_for_object(*JOBSET, "demo", "team")
        ended = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "all of them"}
        server.set_status(jobset, {"conditions": [{**ended, "lastTransitionTime": "2026-01-01T00:00:00Z"}]})

        def has_ended() -> bool:
            return "TrainJob demo: Complete=True all of them" in server.told()

        server.wait_for(has_ended, "the end of the TrainJob")


@pytest.mark.nightly
def test_a_whole_cluster_runs_what_the_plugin_makes(
    trainmaster_cluster: EmbeddedCluster, trainmaster_framework: Callable[..., Framework]
) -> None:
    command = ["python3", "-c", "import os; assert os.environ['REGION'] == 'us'"]
    with trainmaster_cluster.manager(trainmaster_framework(Region("us"))):
        trainmaster_cluster.apply(runtime(), trainjob("demo", trainer={"command": command}))

        def is_complete() -> bool:
            job = trainmaster_cluster.get("trainer.kubeflow.org/v1alpha1", "TrainJob", "demo", "team") or {}
            conditions = (job.get("status") or {}).get("conditions") or []
            return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)

        trainmaster_cluster.wait_for(is_complete, f"the end of the TrainJob; {trainmaster_cluster.told()}")


QUEUES = Watch("acme.dev/v1", "Queue", "queues", writes=True, optional=True)


class Queued:
    """Builds an object of a kind of its own, for the runtimes that ask for it."""

    name = "queued"

    def applies_to(self, info: Info) -> bool:
        return "queued" in info.labels

    def watch_extension(self) -> Iterable[Watch]:
        return [QUEUES]

    def build(self, job: TrainJob) -> Iterator[Desired]:
        yield Desired({"apiVersion": "acme.dev/v1", "kind": "Queue", "metadata": {"name": job.metadata.name}})


def subject(plugin: Any) -> Subject:
    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "train:1"}]}}},
        },
    }
    template = {"metadata": {"labels": {"queued": "yes"}}, "spec": {"replicatedJobs": [node]}}
    return Subject(plugin, runtime={"template": template})


def test_a_plugin_that_conforms_passes(tmp_path: Path) -> None:
    assert not list(uses_its_rights(subject(Queued), tmp_path / "rights"))
    assert not list(survives_definitions(subject(Queued), tmp_path / "definitions"))


def test_an_object_that_it_has_no_right_to_write_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The comparison of all requests of a run would find it, too.
    monkeypatch.delenv(VARIABLE)

    class Undeclared(Queued):
        def build(self, job: TrainJob) -> Iterator[Desired]:
            yield Desired({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": job.metadata.name}})

    (problem, *_) = uses_its_rights(subject(Undeclared), tmp_path, patience=1)
    assert "TrainJob demo-0 does not become a Secret" in problem.what
    assert "declared in watch_extension" in problem.do


def test_rights_that_nothing_uses_are_found(tmp_path: Path) -> None:
    class Greedy(Queued):
        def watch_extension(self) -> Iterable[Watch]:
            return [QUEUES, Watch("v1", "Secret", "secrets", writes=True)]

    told = [problem.what for problem in uses_its_rights(subject(Greedy), tmp_path)]
    assert told == [
        "it asks for the right to create secrets, and nothing uses it",
        "it asks for the right to patch secrets, and nothing uses it",
    ]


def test_a_plugin_may_declare_that_all_jobs_wait_for_its_kind(tmp_path: Path) -> None:
    class Demanding(Queued):
        applies_to = None  # type: ignore[assignment]  # it serves all

        def watch_extension(self) -> Iterable[Watch]:
            return [replace(QUEUES, optional=False)]

    assert not list(survives_definitions(subject(Demanding), tmp_path))


@pytest.mark.nightly
def test_a_plugin_that_holds_up_the_jobs_of_others_is_found(tmp_path: Path) -> None:
    class Selfish(Queued):
        def applies_to(self, info: Info) -> bool:
            return True

        def build(self, job: TrainJob, listers: Listers | None = None) -> Iterator[Desired]:
            assert listers is not None
            if not list(listers.list("acme.dev/v1", "Queue")) and "other" in job.metadata.name:
                raise LookupError("no queue")
            yield from super().build(job)

    (first, *_) = survives_definitions(subject(Selfish), tmp_path, patience=1)
    assert "a TrainJob of another runtime is not built before the cluster serves Queue" in first.what
    assert "LookupError: no queue" in first.what
    assert "optional=True" in first.do
