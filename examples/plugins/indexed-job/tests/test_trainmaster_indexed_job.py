"""The plugin keeps to the interface, and a TrainJob becomes a Job that does what its JobSet would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from trainmaster_indexed_job import JOBSET_NAME, REPLICATED_JOB_NAME, WORKLOAD, IndexedJob, IndexedJobOptions

from trainmaster.runtime.sdk import Info, JsonObject, Rejected, TrainJob, owner_reference
from trainmaster.runtime.testing import KnownObjects, PluginConformance, info, replicated_job, runtime, trainjob

HERE = Path(__file__).parents[1]


def file(name: str) -> JsonObject:
    loaded: JsonObject = yaml.safe_load((HERE / name).read_text(encoding="utf-8"))
    return loaded


class TestConformance(PluginConformance):
    """What every plugin has to keep to."""

    plugin = IndexedJob
    runtime = file("runtime.yaml")
    jobs = (file("trainjob.yaml"), {"trainer": {"image": "registry.example/train:2", "args": ["--fast"]}})


def plugin(*, always: bool = False) -> IndexedJob:
    return IndexedJob(IndexedJobOptions(always=always))


def case(*steps: JsonObject, annotations: dict[str, str] | None = None, **spec: Any) -> tuple[Info, TrainJob]:
    """A TrainJob before any plugin ran."""
    template = {
        "metadata": {"annotations": annotations or {}},
        "spec": {"replicatedJobs": list(steps) or [replicated_job()]},
    }
    job = trainjob(**spec)
    return info(job, runtime(template=template)), TrainJob.model_validate(job)


def built(merged: Info, job: TrainJob) -> dict[str, JsonObject]:
    """What it builds, by kind."""
    plugin().pre_build(merged, job)
    return {desired.object["kind"]: desired.object for desired in plugin().build(merged, job)}


@pytest.mark.parametrize(
    ("asked", "always", "serves"),
    [(None, False, False), (None, True, True), ("Job", False, True), ("JobSet", True, False)],
)
def test_the_runtime_says_what_it_becomes(asked: str | None, always: bool, serves: bool) -> None:
    merged, _ = case(annotations={WORKLOAD: asked} if asked else None)
    assert plugin(always=always).applies_to(merged) is serves


def test_names_are_those_of_a_jobset() -> None:
    merged, job = case()
    merged.pod_sets[0].count = 2
    made = built(merged, job)
    assert list(merged.pod_sets[0].endpoints) == ["demo-node-0-0.demo", "demo-node-0-1.demo"]
    assert made["Job"]["metadata"]["name"] == "demo-node-0"
    assert (made["Job"]["spec"]["parallelism"], made["Job"]["spec"]["completions"]) == (2, 2)
    assert made["Job"]["spec"]["completionMode"] == "Indexed"
    assert made["Job"]["spec"]["template"]["spec"]["subdomain"] == made["Service"]["metadata"]["name"] == "demo"
    labels = {JOBSET_NAME: "demo", REPLICATED_JOB_NAME: "node"}
    assert made["Service"]["spec"]["selector"] == made["Job"]["spec"]["template"]["metadata"]["labels"] == labels


def test_the_trainjob_is_laid_over_the_runtime() -> None:
    env = [{"name": "A", "value": "1"}]
    trainer = {"image": "registry.example/train:2", "command": ["train"], "args": ["--fast"], "env": env}
    made = built(*case(trainer=trainer, suspend=True))
    assert made["Job"]["spec"]["suspend"] is True
    (container,) = made["Job"]["spec"]["template"]["spec"]["containers"]
    assert {name: container[name] for name in trainer} == trainer


@pytest.mark.parametrize(
    "steps", [[replicated_job(), replicated_job("more", ancestor=None)], [replicated_job(replicas=2)]]
)
def test_what_is_more_than_one_job_is_refused(steps: list[JsonObject]) -> None:
    merged, job = case(*steps)
    (error,) = plugin().validate(merged, job)
    assert error.path == "spec.runtimeRef"
    assert "the runtime consists of 2 Jobs, but the plugin indexed-job makes one; use a runtime" in str(error)
    with pytest.raises(Rejected, match="consists of 2 Jobs"):
        plugin().pre_build(merged, job)


def test_names_that_no_pod_can_have_are_refused() -> None:
    job = trainjob("x" * 60)
    (error,) = plugin().validate(info(job), TrainJob.model_validate(job))
    assert error.path == "metadata.name"


@pytest.mark.parametrize(
    ("status", "counts", "condition"),
    [
        ({"active": 2, "ready": 1}, {"active"}, None),
        ({"active": 2, "ready": 2}, {"active", "ready"}, None),
        ({"succeeded": 2, "conditions": ["Complete"]}, {"ready", "succeeded"}, "Complete"),
        ({"failed": 1, "conditions": ["FailureTarget", "Failed"]}, {"failed"}, "Failed"),
    ],
)
def test_the_state_of_the_job_is_that_of_the_trainjob(
    status: JsonObject, counts: set[str], condition: str | None
) -> None:
    merged, job = case()
    merged.pod_sets[0].count = 2
    workload = built(merged, job)["Job"]
    workload["metadata"] |= {"namespace": "team", "ownerReferences": [owner_reference(job)]}
    conditions = [{"type": each, "status": "True", "reason": "Because"} for each in status.get("conditions", [])]
    workload["status"] = {**status, "conditions": conditions}
    listers = KnownObjects(workload, watches=plugin().watch_extension())
    report = plugin().status(job, listers)
    assert report is not None
    assert [(each["type"], each["reason"]) for each in report.conditions] == (
        [(condition, "Because")] if condition else []
    )
    (told,) = report.jobs_status or []
    assert told.pop("name") == "node"
    assert {state for state, count in told.items() if count} == counts
    other = TrainJob.model_validate(trainjob("other"))
    assert plugin().status(other, listers) is None
