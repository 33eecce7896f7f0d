"""The plugin keeps to the interface, and TrainJobs get to their queues."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from acme_kai import (
    BY_QUEUE,
    BY_RUNTIME,
    KAI,
    MIN_MEMBER_ANNOTATION,
    QUEUE_API,
    QUEUE_LABEL,
    KAIOptions,
    KAIPolicy,
    jobs_of_queue,
)

from trainmaster.runtime.sdk import FieldError, FieldWarning, Info, JsonObject, NotReady, TrainJob
from trainmaster.runtime.testing import KnownObjects, PluginConformance, info, runtime, trainjob

HERE = Path(__file__).parents[1]


def files(name: str) -> list[JsonObject]:
    return list(yaml.safe_load_all((HERE / name).read_text(encoding="utf-8")))


QUEUES = files("queue.yaml")


class TestConformance(PluginConformance):
    """What every plugin has to keep to."""

    plugin = KAI
    runtime = files("runtime.yaml")[0]
    jobs = files("trainjob.yaml")
    objects = QUEUES


def plugin(**options: str) -> KAI:
    return KAI(KAIOptions.model_validate(options))


def case(*objects: JsonObject, queue: str | None = None) -> tuple[Info, TrainJob, KAIPolicy]:
    """A TrainJob on a runtime of the queue `research`, in a cluster with a few objects."""
    labels = {QUEUE_LABEL: queue} if queue else None
    job = trainjob(labels=labels)
    merged = info(job, listers=KnownObjects(*objects))
    return merged, TrainJob.model_validate(job), KAIPolicy(queue="research")


def validated(*objects: JsonObject, queue: str | None = None) -> list[FieldError | FieldWarning]:
    merged, job, config = case(*objects, queue=queue)
    return list(plugin().validate(merged, job, merged.listers, config))


@pytest.mark.parametrize(("label", "queue"), [(None, "research"), ("acme", "acme")])
def test_pods_go_to_the_queue_of_the_trainjob_else_of_its_runtime(label: str | None, queue: str) -> None:
    merged, job, config = case(*QUEUES, queue=label)
    plugin(scheduler_name="kai-2").enforce_pod_group(merged, job, config)
    (pods,) = merged.pod_sets
    assert merged.labels == pods.pod_template["metadata"]["labels"] == {QUEUE_LABEL: queue}
    assert pods.pod_spec["schedulerName"] == "kai-2"


@pytest.mark.parametrize(("waits", "quorum"), [([{"name": "data", "status": "Complete"}], "1"), ([], None)])
def test_pods_that_come_after_others_are_a_gang_of_their_own(waits: list[JsonObject], quorum: str | None) -> None:
    merged, job, config = case(*QUEUES)
    merged.template["replicatedJobs"][0]["dependsOn"] = waits
    plugin().enforce_pod_group(merged, job, config)
    assert merged.annotations.get(MIN_MEMBER_ANNOTATION) == quorum


def test_a_trainjob_waits_for_its_queue() -> None:
    merged, job, config = case(*QUEUES, queue="reserch")
    with pytest.raises(NotReady, match=r"no queue 'reserch' \(did you mean \"research\"\?\)"):
        plugin().enforce_pod_group(merged, job, config)


def test_a_queue_of_queues_is_warned_of() -> None:
    acme, research = QUEUES
    (warning,) = validated({**acme, "status": {"childQueues": ["research"]}}, research, queue="acme")
    assert isinstance(warning, FieldWarning)
    assert str(warning) == (
        f"metadata.labels[{QUEUE_LABEL}]: KAI Scheduler runs nothing in a queue that has queues below it: use research"
    )
    assert validated(*QUEUES) == []


def test_another_scheduler_is_refused() -> None:
    merged, job, config = case(*QUEUES)
    merged.pod_sets[0].pod_spec["schedulerName"] = "volcano"
    (error,) = plugin().validate(merged, job, merged.listers, config)
    assert str(error).startswith('spec.runtimeRef: Invalid value: "volcano": the pods of node have a scheduler')


def test_a_queue_concerns_those_that_name_it() -> None:
    """By themselves or by their runtimes, each found by an index."""
    own = trainjob("own", labels={QUEUE_LABEL: "research"}, runtimeRef={"name": "other"})
    by_runtime = trainjob("by-runtime", runtimeRef={"name": "conformance"})
    namespaced = trainjob("namespaced", runtimeRef={"name": "conformance", "kind": "TrainingRuntime"})
    policy = {"custom": {"name": "kai", "config": {"queue": "research"}}}
    listers = KnownObjects(
        *(own, by_runtime, namespaced, runtime(podGroupPolicy=policy), runtime("other")),
        watches=plugin().watch_extension(),
    )
    assert list(jobs_of_queue(QUEUES[1], listers)) == [("team", "own"), ("team", "by-runtime")]
    assert list(jobs_of_queue(QUEUES[0], listers)) == []


def test_indexes_are_named_after_the_plugin() -> None:
    indexes = {name for watch in plugin().watch_extension() for name in watch.indexes}
    assert indexes == {BY_QUEUE, BY_RUNTIME}
    assert {watch.api_version for watch in plugin().watch_extension() if watch.jobs} == {QUEUE_API}
