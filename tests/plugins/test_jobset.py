"""The plugin jobset: what a TrainJob may ask of its runtime, and what the JobSet says about itself."""

import pytest
from support.objects import replicated_job, runtime_object, trainjob, trainjob_object
from support.resolutions import FRAMEWORK, FakeListers
from support.validation import patch, pods, validate

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.ownership import owner_reference

RUNTIME = runtime_object(policy={"torch": {}})


def test_patches_do_not_change_while_pods_still_run() -> None:
    old, new = trainjob_object(suspend=True), trainjob_object(suspend=True, runtimePatches=[patch(pods())])
    status = [{"name": "node", "active": 1}, {"name": "other", "active": 0}]
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "demo", "namespace": "team"},
        "status": {"replicatedJobsStatus": status},
    }
    assert validate(new, RUNTIME, jobset, old=old).message == (
        "spec.runtimePatches: Forbidden: RuntimePatches cannot be modified when the JobSet's ReplicatedJob node is "
        "still active"
    )
    status[0]["active"] = 0
    assert validate(new, RUNTIME, jobset, old=old).allowed


@pytest.mark.defect("B4")
@pytest.mark.parametrize(
    ("patched", "problem"),
    [
        (pods("nod"), 'replicated job that doesn\'t exist in the runtime job template (did you mean "node"?)'),
        (
            pods(containers=[{"name": "noed"}]),
            'container that doesn\'t exist in the runtime job node (did you mean "node"?)',
        ),
        (
            pods(initContainers=[{"name": "x"}]),
            "initContainer that doesn't exist in the runtime job node (there are none)",
        ),
    ],
)
def test_a_patch_names_what_the_runtime_has(patched: JsonObject, problem: str) -> None:
    assert validate(trainjob_object(runtimePatches=[patch(pods(containers=[{"name": "node"}]))]), RUNTIME).allowed
    result = validate(trainjob_object(runtimePatches=[patch(patched)]), RUNTIME)
    assert result.message.startswith("spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]")
    assert f"must not have {problem}" in result.message


def test_the_environment_of_main_containers_is_not_patched() -> None:
    env = [{"name": "A", "value": "1"}]
    runtime = runtime_object(
        replicated_job(containers=[{"name": "node", "image": "i"}, {"name": "side", "image": "i"}])
    )
    side = trainjob_object(runtimePatches=[patch(pods(containers=[{"name": "side", "env": env}]))])
    assert validate(side, runtime).allowed
    main = trainjob_object(runtimePatches=[patch(pods(containers=[{"name": "node", "env": env}]))])
    assert validate(main, runtime).message.endswith(
        "must not have envs for the dataset-initializer, model-initializer, node containers"
    )


@pytest.mark.parametrize("kind", ["dataset", "model"])
def test_settings_that_reach_no_initializer_are_warned_about(kind: str) -> None:
    """Only the label makes a ReplicatedJob an initializer; without it the job runs as the runtime says."""
    step = f"{kind}-initializer"
    container = {"name": step, "image": "i", "volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}]}
    job = trainjob_object(initializer={kind: {"storageUri": "hf://a/b"}})

    def warnings(ancestor: str | None) -> list[str]:
        initializer = replicated_job(step, ancestor=ancestor, containers=[container])
        result = validate(job, runtime_object(replicated_job(), initializer))
        assert result.allowed
        return list(result.warnings)

    assert warnings(step) == []
    (warning,) = warnings(None)
    assert warning.startswith(
        f"spec.initializer.{kind}: is not used: only the label trainer.kubeflow.org/trainjob-ancestor-step: {step} on"
    )


@pytest.mark.defect("B17")
def test_data_that_goes_to_a_cache_needs_no_volume() -> None:
    step = "dataset-initializer"
    runtime = runtime_object(replicated_job(step, ancestor=step, containers=[{"name": step, "image": "i"}]))
    assert validate(trainjob_object(initializer={"dataset": {"storageUri": "cache://a/b"}}), runtime).allowed
    assert not validate(trainjob_object(initializer={"dataset": {"storageUri": "s3://a/b"}}), runtime).allowed


def test_a_jobset_condition_that_lacks_something_still_ends_the_job() -> None:
    """The schema of TrainJobs demands a reason; without one the end could never be written down."""
    completed = {"type": "Completed", "status": "True", "reason": "", "lastTransitionTime": None}
    job = trainjob()
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "demo", "namespace": "team", "ownerReferences": [owner_reference(job)]},
        "status": {
            "conditions": [completed, {"type": "Odd"}, {}],
            "replicatedJobsStatus": [{"name": "node", "ready": None}],
        },
    }

    report = FRAMEWORK.status(job, FakeListers(jobset))
    assert report is not None
    assert report.conditions == [{"type": "Complete", "status": "True", "reason": "Completed", "message": ""}]
    assert report.jobs_status == [
        {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    ]
