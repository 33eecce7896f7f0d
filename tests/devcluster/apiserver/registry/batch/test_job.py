"""Jobs: what may be in their policies, and what may be written to their status."""

from typing import Any

import pytest
from support.apiserver import assert_refused, mistakes_of

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import JOBS
from trainmaster.runtime.jsontree import JsonObject

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
            failure(onExitCodes={**CODES, "containerName": "other"}),
            (
                'spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "other": '
                "must be one of the container or initContainer names in the pod template"
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
    ],
)
async def test_a_job_with_a_senseless_policy_is_refused(api: Api, spec: JsonObject, complaint: str) -> None:
    await assert_refused(api.create(JOBS, manifest(**spec), namespace="default"), 422, complaint)


@pytest.mark.parametrize("text", ["x", "1-2-3", "4", "0-4", ",", "-1", "9" * 5000])
async def test_malformed_indexes_are_told(api: Api, text: str) -> None:
    await assert_refused(
        api.create(JOBS, manifest(**success(succeededIndexes=text)), namespace="default"),
        422,
        "spec.successPolicy.rules[0].succeededIndexes: Invalid value",
    )


async def write_status(api: Api, **status: Any) -> JsonObject:
    job = api.get(JOBS, "default", "train")
    return await api.update(JOBS, {**job, "status": status}, subresource="status")


async def test_a_suspended_job_may_forget_its_start(api: Api) -> None:
    """JobSet resumes a Job by this, so that its pod template can be changed."""
    await api.create(JOBS, manifest(suspend=True), namespace="default")
    await write_status(api, startTime=T0)
    assert "startTime" not in (await write_status(api))["status"]


@pytest.mark.parametrize(
    ("spec", "mistakes"),
    [
        (
            {"completionMode": "NonIndexed", "backoffLimitPerIndex": 1, "maxFailedIndexes": 1},
            {("spec.backoffLimitPerIndex", "Invalid"), ("spec.maxFailedIndexes", "Invalid")},
        ),
        ({"managedBy": "a.b/" + "c" * 60}, {("spec.managedBy", "TooLong")}),
        ({"managedBy": "A.b/c"}, {("spec.managedBy", "Invalid")}),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            {("spec.selector.matchExpressions[0].operator", "Invalid")},
        ),
    ],
)
async def test_what_a_real_server_refuses_in_a_spec_is_refused(
    api: Api, spec: JsonObject, mistakes: set[tuple[str, str]]
) -> None:
    job = manifest(**spec)
    job["spec"] = {field: value for field, value in job["spec"].items() if value is not None}
    assert await mistakes_of(api.create(JOBS, job, namespace="default")) == mistakes


async def test_a_job_with_labels_of_its_own_gets_no_others(api: Api) -> None:
    own = manifest()
    own["metadata"]["labels"] = {"mine": "yes"}
    assert (await api.create(JOBS, own, namespace="default"))["metadata"]["labels"] == {"mine": "yes"}
