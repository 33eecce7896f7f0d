"""What JobSet, Job and Pod validation refuse for certain is refused at admission; anything else is a warning."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobset_faults import GAPS, JOB_FAULTS, JOBSET_FAULTS, POD, container
from support.objects import replicated_job, runtime_object, trainjob_object
from support.resolutions import FRAMEWORK, FakeListers

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.validation import ValidationResult, validate_trainjob
from trainmaster.runtime.validation.jobset import may_lack_jobs, validate_jobset

JOBSET = "spec: Forbidden: the JobSet that this TrainJob becomes would be refused: spec.replicatedJobs"
JOBS = (
    "spec: Forbidden: the JobSet that this TrainJob becomes would be accepted, but its Jobs refused: "
    "spec.replicatedJobs"
)
UNLESS = (
    "spec: the Jobs of the JobSet that this TrainJob becomes will be refused, unless an admission plugin of the "
    "cluster adds what is missing: spec.replicatedJobs"
)


def validated(*jobs: JsonObject, **spec: Any) -> ValidationResult:
    """What becomes of a TrainJob on a runtime of these jobs."""
    listers = FakeListers(runtime_object(*jobs))
    return validate_trainjob(trainjob_object(**spec), None, framework=FRAMEWORK, listers=listers)


def refusal(*jobs: JsonObject, **spec: Any) -> str:
    """Why a TrainJob on a runtime of these jobs is refused."""
    return validated(*jobs, **spec).message


def patched(**spec: Any) -> JsonObject:
    job = {"name": "node", "template": {"spec": {"template": {"spec": spec}}}}
    template = {"spec": {"replicatedJobs": [job]}}
    return {"runtimePatches": [{"manager": "a.io/a", "trainingRuntimeSpec": {"template": template}}]}


@pytest.mark.parametrize(("job", "problem"), JOBSET_FAULTS)
def test_what_the_schema_or_the_webhook_of_jobset_refuses_is_refused_in_its_name(job: JsonObject, problem: str) -> None:
    assert f"{JOBSET}{problem}" in refusal(job)


@pytest.mark.parametrize(("job", "problem"), JOB_FAULTS)
def test_what_only_the_jobs_are_refused_for_is_not_put_on_jobset(job: JsonObject, problem: str) -> None:
    assert f"{JOBS}{problem}" in refusal(job)


@pytest.mark.parametrize(("job", "problem"), GAPS)
def test_what_an_admission_plugin_may_add_is_admitted_with_a_warning(job: JsonObject, problem: str) -> None:
    result = validated(job)
    assert (result.allowed, list(result.warnings)) == (True, [f"{UNLESS}{problem}"])


def test_pods_without_containers_and_volumes_of_patches_may_be_completed_too() -> None:
    side = replicated_job("side", ancestor=None)
    side["template"]["spec"]["template"]["spec"]["containers"] = []
    result = validated(replicated_job(), side)
    assert (result.allowed, list(result.warnings)) == (
        True,
        [f"{UNLESS}[1].template.spec.template.spec.containers: Required value"],
    )
    mounts = [{"name": "other", "mountPath": "/o"}]
    result = validated(replicated_job(), **patched(containers=[{"name": "node", "volumeMounts": mounts}]))
    assert (result.allowed, list(result.warnings)) == (
        True,
        [f'{UNLESS}{POD}.containers[0].volumeMounts[0].name: Not found: "other"'],
    )


def test_a_negative_number_of_replicas_is_refused_by_nobody() -> None:
    result = validated(replicated_job(), replicated_job("side", ancestor=None, replicas=-1))
    (warning,) = result.warnings
    assert result.allowed
    assert warning.startswith(
        "spec: in the JobSet that this TrainJob becomes: spec.replicatedJobs[1].replicas: is -1; "
    )


def test_what_is_fine_is_admitted() -> None:
    fine = container(
        env=[{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        ports=[{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}],
        resources={"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "nvidia.com/gpu": "1", "hugepages-2Mi": "4Mi"}},
        volumeMounts=[{"name": "v", "mountPath": "/v"}],
    )
    fine["template"]["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    side = replicated_job("side", ancestor=None, dependsOn=[{"name": "node", "status": "Ready"}])
    assert refusal(fine, side) == ""


def test_patches_that_contradict_the_runtime_are_refused() -> None:
    job = container(env=[{"name": "A", "value": "1"}], volumeMounts=[{"name": "v", "mountPath": "/v"}])
    job["template"]["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    problem = "may not specify more than 1 volume type, and has emptyDir, persistentVolumeClaim"
    assert f"{JOBS}{POD}.volumes[0]: {problem}" in refusal(job, **patched(volumes=[claim]))


def test_merged_resources_are_judged_and_not_the_parts() -> None:
    job = container(resources={"requests": {"cpu": "4"}})
    assert refusal(job, trainer={"resourcesPerNode": {"limits": {"cpu": "8"}}}) == ""
    message = refusal(job, trainer={"resourcesPerNode": {"limits": {"cpu": "2"}}})
    assert "4 must be less than or equal to cpu limit of 2" in message


def test_labels_that_a_patch_adds_are_judged() -> None:
    template = {"metadata": {"labels": {"a": "no spaces"}, "annotations": {"b b": "x"}}}
    message = refusal(runtimePatches=[{"manager": "a.io/a", "trainingRuntimeSpec": {"template": template}}])
    assert "would be refused: metadata.labels: 'no spaces': a valid label must be" in message
    assert "would be refused: metadata.annotations: 'b b': name part must consist of" in message


def test_more_pods_than_an_indexed_job_can_have_are_refused() -> None:
    assert refusal(trainer={"numNodes": 100_000}) == ""
    assert "parallelism: must be less than or equal to 100000" in refusal(trainer={"numNodes": 100_001})


def test_references_between_replicated_jobs_are_followed() -> None:
    listers = FakeListers(
        runtime_object(
            replicated_job(),
            successPolicy={"operator": "All", "targetReplicatedJobs": ["nobody"]},
            failurePolicy={"rules": [{"name": "r", "action": "FailJobSet", "targetReplicatedJobs": ["none"]}]},
            network={"subdomain": "Not.A.Label"},
        )
    )
    message = validate_trainjob(trainjob_object(), None, framework=FRAMEWORK, listers=listers).message
    assert 'spec.successPolicy.targetReplicatedJobs: there is no ReplicatedJob "nobody"' in message
    assert 'spec.failurePolicy.rules: there is no ReplicatedJob "none"' in message
    assert "spec.network.subdomain: a DNS-1035 label must consist of" in message


def test_what_has_an_odd_shape_is_refused_as_such() -> None:
    assert "is not shaped like" in refusal(container(ports=[{"containerPort": "http"}]))


_AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "nvidia.com/gpu", "hugepages-2Mi"]), st.just("1"))
_CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["node", "side"])},
        optional={
            "image": st.sampled_from(["", "train:1"]),
            "volumeMounts": st.lists(
                st.fixed_dictionaries({"name": st.sampled_from(["a", "b"]), "mountPath": st.just("/x")}), max_size=2
            ),
            "resources": st.fixed_dictionaries({}, optional={"limits": _AMOUNTS, "requests": _AMOUNTS}),
        },
    ),
    max_size=2,
)
_PODS = st.fixed_dictionaries(
    {"containers": _CONTAINERS},
    optional={
        "initContainers": _CONTAINERS,
        "volumes": st.lists(st.fixed_dictionaries({"name": st.sampled_from(["a", "b"])}), max_size=2),
        "restartPolicy": st.sampled_from(["Never", "Always"]),
    },
)


@given(pods=st.lists(_PODS, max_size=2), claims=st.lists(st.sampled_from(["a", "b"]), max_size=1))
def test_a_jobset_may_lack_jobs_if_what_is_missing_is_warned_of(pods: list[JsonObject], claims: list[str]) -> None:
    """It is asked of every TrainJob, so it looks for less than a validation, and must find the same."""
    jobs = [
        {"name": f"job-{number}", "template": {"spec": {"template": {"spec": pod}}}} for number, pod in enumerate(pods)
    ]
    policies = [{"templates": [{"metadata": {"name": name}} for name in claims]}]
    spec = {"replicatedJobs": jobs, "volumeClaimPolicies": policies}
    jobset = {"kind": "JobSet", "metadata": {"name": "demo"}, "spec": spec}
    told = [str(problem) for problem in validate_jobset(jobset, {})]
    assert may_lack_jobs(jobset) == any(text.startswith(UNLESS) for text in told)


OTHER_KIND = {"kind": "PodGroup", "spec": {"replicatedJobs": [{}]}}


@pytest.mark.parametrize("odd", [{}, {"spec": None}, {"spec": {"replicatedJobs": [{"name": "node"}]}}, OTHER_KIND])
def test_what_is_not_admitted_or_of_another_kind_lacks_no_jobs(odd: JsonObject) -> None:
    assert not may_lack_jobs({"kind": "JobSet", "metadata": {"name": "demo"}, **odd})
