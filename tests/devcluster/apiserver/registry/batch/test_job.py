"""Jobs: what may be in their policies, and what may be written to their status."""

from __future__ import annotations

from typing import Any

import pytest
from support.refusals import mistakes_of

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.batch.job_policy_validation import IndexesMalformed, count_indexes
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import JOBS
from trainmaster.runtime.jsontree import JsonObject, copy_tree

CODES = {"operator": "In", "values": [1]}
T0, T1 = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def manifest(**spec: Any) -> JsonObject:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "img"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"completionMode": "Indexed", "completions": 4, "template": {"spec": pod}, **spec},
    }


def failure(**rule: Any) -> JsonObject:
    return {"podFailurePolicy": {"rules": [{"action": "FailJob", **rule}]}}


def success(**rule: Any) -> JsonObject:
    return {"successPolicy": {"rules": [rule]}}


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (
            failure(onExitCodes=CODES, action="Explode"),
            (
                "spec.podFailurePolicy.rules[0].action: Unsupported value: "
                '"Explode": supported values: "Count", "FailIndex", "FailJob", "Ignore"'
            ),
        ),
        (
            failure(onExitCodes=CODES, action="FailIndex"),
            (
                'spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": '
                "requires the backoffLimitPerIndex to be set"
            ),
        ),
        (
            failure(),
            (
                "spec.podFailurePolicy.rules[0]: Invalid value: "
                "specifying one of OnExitCodes and OnPodConditions is required"
            ),
        ),
        (
            failure(onExitCodes=CODES, onPodConditions=[{"type": "DisruptionTarget"}]),
            (
                "spec.podFailurePolicy.rules[0]: Invalid value: "
                "specifying both OnExitCodes and OnPodConditions is not supported"
            ),
        ),
        (
            failure(onExitCodes={"operator": "In", "values": [0, 1]}),
            "spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
        ),
        (
            failure(onExitCodes={"operator": "In", "values": []}),
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: []: at least one value is required",
        ),
        (
            failure(onExitCodes={"operator": "In", "values": [2, 1]}),
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,1]: must be ordered",
        ),
        (
            failure(onExitCodes={"operator": "In", "values": [2, 2]}),
            "spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Duplicate value: 2",
        ),
        (
            failure(onExitCodes={"operator": "Among", "values": [1]}),
            (
                "spec.podFailurePolicy.rules[0].onExitCodes.operator: Unsupported value: "
                '"Among": supported values: "In", "NotIn"'
            ),
        ),
        (
            failure(onExitCodes={**CODES, "containerName": "other"}),
            (
                'spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "other": '
                "must be one of the container or initContainer names in the pod template"
            ),
        ),
        (
            failure(onPodConditions=[{"type": "Ready", "status": "Maybe"}]),
            (
                "spec.podFailurePolicy.rules[0].onPodConditions[0].status: Unsupported value: "
                '"Maybe": supported values: "False", "True", "Unknown"'
            ),
        ),
        (
            {"podFailurePolicy": {"rules": [{"action": "Count", "onExitCodes": CODES}] * 21}},
            "spec.podFailurePolicy.rules: Too many: 21: must have at most 20 items",
        ),
        (
            {"successPolicy": {"rules": []}},
            (
                "spec.successPolicy.rules: Required value: "
                "at least one rules must be specified when the successPolicy is specified"
            ),
        ),
        (
            success(),
            (
                "spec.successPolicy.rules[0]: Required value: "
                "at least one of succeededCount or succeededIndexes must be specified"
            ),
        ),
        (
            success(succeededCount=5),
            (
                "spec.successPolicy.rules[0].succeededCount: Invalid value: 5: "
                "must be less than or equal to 4 (the number of specified completions)"
            ),
        ),
        (
            success(succeededCount=3, succeededIndexes="0-1"),
            (
                "spec.successPolicy.rules[0].succeededCount: Invalid value: 3: "
                "must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)"
            ),
        ),
        (
            success(succeededIndexes="3,1"),
            (
                'spec.successPolicy.rules[0].succeededIndexes: Invalid value: "3,1": '
                "error parsing succeededIndexes: non-increasing order, previous: 3, current: 1"
            ),
        ),
        (
            {**success(succeededCount=1), "completionMode": "NonIndexed"},
            "requires indexed completion mode",
        ),
        ({"maxFailedIndexes": 1}, "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"),
        (
            {"maxFailedIndexes": 5, "backoffLimitPerIndex": 1},
            "spec.maxFailedIndexes: Invalid value: 5: must be less than or equal to completions",
        ),
        (
            {"parallelism": 100_001},
            (
                "spec.parallelism: Invalid value: 100001: "
                "must be less than or equal to 100000 when completion mode is Indexed"
            ),
        ),
        ({"managedBy": "me"}, 'spec.managedBy: Invalid value: "me": must be a domain-prefixed path'),
        (
            {**failure(onExitCodes=CODES), "podReplacementPolicy": "TerminatingOrFailed"},
            'spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
        ),
    ],
)
async def test_a_job_with_a_senseless_policy_is_refused(api: Api, spec: JsonObject, complaint: str) -> None:
    with pytest.raises(StatusError) as caught:
        await api.create(JOBS, manifest(**spec), namespace="default")
    assert caught.value.code == 422
    assert complaint in caught.value.message


async def test_sensible_policies_are_accepted(api: Api) -> None:
    rules = [
        {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [0, 3], "containerName": "main"}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ]
    spec = {"podFailurePolicy": {"rules": rules}, **success(succeededIndexes="0,2-3", succeededCount=3)}
    job = await api.create(JOBS, manifest(backoffLimitPerIndex=1, maxFailedIndexes=4, **spec), namespace="default")
    assert job["spec"]["podReplacementPolicy"] == "Failed"


@pytest.mark.parametrize(("text", "count"), [("", 0), ("0", 1), ("0,2-4", 4), ("1-2,5-9", 7), ("3-3", 1)])
def test_indexes_are_counted(text: str, count: int) -> None:
    assert count_indexes(text, 10) == count


@pytest.mark.parametrize("text", ["x", "1-2-3", "2,1", "3-1", "3-4,4", "10", ",", "-1", "9" * 5000])
def test_malformed_indexes_are_told(text: str) -> None:
    with pytest.raises(IndexesMalformed):
        count_indexes(text, 10)


def conditions(*names: str) -> list[JsonObject]:
    return [{"type": name, "status": "True", "lastTransitionTime": T0, "lastProbeTime": T0} for name in names]


async def write_status(api: Api, **status: Any) -> JsonObject:
    job = api.get(JOBS, "default", "train")
    return await api.update(JOBS, {**job, "status": status}, subresource="status")


COMPLETE = {"conditions": conditions("SuccessCriteriaMet", "Complete"), "startTime": T0, "completionTime": T1}


@pytest.mark.parametrize(
    ("status", "complaint"),
    [
        (
            {**COMPLETE, "conditions": conditions("Complete")},
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (
            {"conditions": conditions("Failed"), "startTime": T0},
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            {**COMPLETE, "conditions": conditions("SuccessCriteriaMet", "Complete", "Failed", "FailureTarget")},
            "cannot set Complete=True and Failed=true conditions",
        ),
        ({**COMPLETE, "completionTime": None}, "completionTime is required for Complete jobs"),
        ({**COMPLETE, "startTime": None}, "startTime is required for finished job"),
        ({**COMPLETE, "startTime": T1, "completionTime": T0}, "must be equal to or after `startTime`"),
        ({**COMPLETE, "active": 1}, "active>0 is invalid for finished job"),
        ({**COMPLETE, "terminating": 1}, "terminating>0 is invalid for finished job"),
        (
            {**COMPLETE, "uncountedTerminatedPods": {"failed": ["uid"]}},
            "must be empty for finished job",
        ),
        ({"completionTime": T1}, "cannot set completionTime when there is no Complete=True condition"),
        ({"active": 1, "ready": 2}, "cannot set more ready pods than active"),
        ({"active": -1}, "must be greater than or equal to 0"),
        ({"failed": 0, "startTime": T0}, "cannot decrease the failed counter"),
        ({"failed": 1}, "startTime cannot be removed for unsuspended job"),
        ({"failed": 1, "startTime": T1}, "startTime cannot be removed for unsuspended job"),
        (
            {"failed": 1, "startTime": T0, "completedIndexes": "4"},
            'error parsing completedIndexes: too large index: "4"',
        ),
        (
            {"failed": 1, "startTime": T0, "failedIndexes": "1"},
            "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        ),
    ],
)
async def test_a_status_that_contradicts_itself_or_the_past_is_refused(
    api: Api, status: JsonObject, complaint: str
) -> None:
    await api.create(JOBS, manifest(), namespace="default")
    await write_status(api, startTime=T0, failed=1, active=1, ready=1)
    with pytest.raises(StatusError) as caught:
        await write_status(api, **{key: value for key, value in status.items() if value is not None})
    assert caught.value.code == 422
    assert complaint in caught.value.message


async def test_an_end_is_final(api: Api) -> None:
    await api.create(JOBS, manifest(), namespace="default")
    done = await write_status(api, **COMPLETE)
    assert done["status"]["completionTime"] == T1
    with pytest.raises(StatusError, match="cannot disable the terminal Complete=True condition"):
        await write_status(api, startTime=T0)
    with pytest.raises(StatusError, match="field is immutable"):
        await write_status(api, **{**COMPLETE, "completionTime": "2026-01-01T00:02:00Z"})


async def test_a_suspended_job_may_forget_its_start(api: Api) -> None:
    """JobSet resumes a Job by this, so that its pod template can be changed."""
    await api.create(JOBS, manifest(suspend=True), namespace="default")
    await write_status(api, startTime=T0)
    assert "startTime" not in (await write_status(api))["status"]


@pytest.mark.parametrize(
    ("suspend", "status", "allowed"),
    [
        (True, {}, True),
        (True, {"startTime": T0, "conditions": conditions("Suspended")}, True),
        (True, {"startTime": T0}, False),
        (True, {"startTime": T0, "conditions": conditions("Suspended"), "active": 1}, False),
        (False, {}, False),
    ],
)
async def test_where_pods_run_can_change_only_while_none_runs(
    api: Api, suspend: bool, status: JsonObject, allowed: bool
) -> None:
    await api.create(JOBS, manifest(suspend=suspend), namespace="default")
    job = await write_status(api, **status) if status else api.get(JOBS, "default", "train")
    template = job["spec"]["template"]
    moved = {**template, "spec": {**template["spec"], "nodeSelector": {"zone": "a"}}}
    changed = {**job, "spec": {**job["spec"], "template": moved}}
    if allowed:
        assert (await api.update(JOBS, changed))["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}
        return
    with pytest.raises(StatusError, match=r"spec\.template: Invalid value: .*: field is immutable"):
        await api.update(JOBS, changed)


async def test_the_image_never_changes(api: Api) -> None:
    job = copy_tree(await api.create(JOBS, manifest(suspend=True), namespace="default"))
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    with pytest.raises(StatusError, match="field is immutable"):
        await api.update(JOBS, job)


async def refused(api: Api, obj: JsonObject) -> set[tuple[str, str]]:
    """Return the mistakes for which a Job is refused."""
    with pytest.raises(StatusError) as caught:
        await api.create(JOBS, obj, namespace="default")
    return mistakes_of(caught.value)


@pytest.mark.parametrize(
    ("spec", "mistakes"),
    [
        ({"completions": None, "parallelism": 2}, {("spec.completions", "Required")}),
        ({"parallelism": 100_001}, {("spec.parallelism", "Invalid")}),
        ({"maxFailedIndexes": 1}, {("spec.backoffLimitPerIndex", "Required")}),
        ({"backoffLimitPerIndex": 1, "maxFailedIndexes": 5}, {("spec.maxFailedIndexes", "Invalid")}),
        (
            {"backoffLimitPerIndex": 1, "completions": 100_001, "parallelism": 10_001},
            {("spec.maxFailedIndexes", "Required"), ("spec.parallelism", "Invalid")},
        ),
        (
            {"backoffLimitPerIndex": 1, "completions": 100_001, "maxFailedIndexes": 10_001},
            {("spec.maxFailedIndexes", "Invalid")},
        ),
        (
            {"completionMode": "NonIndexed", "backoffLimitPerIndex": 1, "maxFailedIndexes": 1},
            {("spec.backoffLimitPerIndex", "Invalid"), ("spec.maxFailedIndexes", "Invalid")},
        ),
        ({"completionMode": "NonIndexed", **success(succeededCount=1)}, {("spec.successPolicy", "Invalid")}),
        ({"completionMode": ""}, {("spec.completionMode", "NotSupported")}),
        ({"podReplacementPolicy": ""}, {("spec.podReplacementPolicy", "NotSupported")}),
        ({"managedBy": ""}, {("spec.managedBy", "Required")}),
        ({"managedBy": "a.b/" + "c" * 60}, {("spec.managedBy", "TooLong")}),
        ({"managedBy": "A.b/c"}, {("spec.managedBy", "Invalid")}),
        (
            {"selector": {"matchLabels": {"a": "b"}}},
            {("spec.selector", "Invalid"), ("spec.template.metadata.labels", "Invalid")},
        ),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            {("spec.selector.matchExpressions[0].operator", "Invalid")},
        ),
        (
            {"manualSelector": True},
            {("spec.selector", "Required"), ("spec.template.metadata.labels", "Invalid")},
        ),
        (
            {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}},
            {("spec.template.metadata.labels", "Invalid")},
        ),
    ],
)
async def test_what_a_real_server_refuses_in_a_spec_is_refused(
    api: Api, spec: JsonObject, mistakes: set[tuple[str, str]]
) -> None:
    job = manifest(**spec)
    job["spec"] = {field: value for field, value in job["spec"].items() if value is not None}
    assert await refused(api, job) == mistakes


async def test_generated_labels_that_the_template_contradicts_are_refused(api: Api) -> None:
    job = manifest()
    job["spec"]["template"]["metadata"] = {"labels": {"job-name": "other"}}
    assert await refused(api, job) == {("spec.template.metadata.labels[job-name]", "Invalid")}


@pytest.mark.parametrize(("name", "field"), [("j" * 64, "spec.template.labels"), ("j" * 62, "metadata.name")])
async def test_a_name_that_fits_no_label_or_host_is_refused(api: Api, name: str, field: str) -> None:
    job = manifest(completionMode="NonIndexed" if len(name) > 63 else "Indexed")
    job["metadata"]["name"] = name
    assert await refused(api, job) == {(field, "Invalid")}


async def test_new_jobs_carry_the_generated_labels_of_their_pods(api: Api) -> None:
    made = await api.create(JOBS, manifest(), namespace="default")
    uid = made["metadata"]["uid"]
    assert made["metadata"]["labels"] == made["spec"]["template"]["metadata"]["labels"]
    assert made["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == uid
    own = manifest()
    own["metadata"] = {"name": "own", "labels": {"mine": "yes"}}
    assert (await api.create(JOBS, own, namespace="default"))["metadata"]["labels"] == {"mine": "yes"}


async def test_zero_counters_are_left_out_of_a_status(api: Api) -> None:
    await api.create(JOBS, manifest(), namespace="default")
    job = await write_status(api, startTime=T0, active=0, succeeded=0, failed=0, ready=0, terminating=0)
    assert job["status"] == {"startTime": T0, "ready": 0, "terminating": 0}


@pytest.mark.parametrize(
    ("change", "mistakes"),
    [
        ({"podReplacementPolicy": "Failed"}, set()),
        ({"completions": 5, "parallelism": 5}, set()),
        ({"completions": 5}, {("spec.completions", "Invalid")}),
        ({"backoffLimit": 3, "ttlSecondsAfterFinished": 1, "activeDeadlineSeconds": 9, "parallelism": 1}, set()),
        ({"managedBy": "a.b/c"}, {("spec.managedBy", "Invalid")}),
        ({"completionMode": "NonIndexed"}, {("spec.completionMode", "Invalid")}),
        (success(succeededCount=1), {("spec.successPolicy", "Invalid")}),
        (
            {"selector": None},
            {("spec.selector", "Required"), ("spec.selector", "Invalid"), ("spec.template.metadata.labels", "Invalid")},
        ),
    ],
)
async def test_what_of_a_job_may_change(api: Api, change: JsonObject, mistakes: set[tuple[str, str]]) -> None:
    job = copy_tree(await api.create(JOBS, manifest(), namespace="default"))
    job["spec"] = {field: value for field, value in (job["spec"] | change).items() if value is not None}
    if not mistakes:
        await api.update(JOBS, job)
        return
    with pytest.raises(StatusError) as caught:
        await api.update(JOBS, job)
    assert mistakes_of(caught.value) == mistakes
