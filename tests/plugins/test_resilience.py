"""The plugin resilience: what Jobs and the JobSet get of a policy, and what is wrong with one."""

import json
from typing import Any

import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.resolutions import FRAMEWORK, FakeListers, companion, job_spec, jobset
from support.validation import validate, validate_runtime

from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.ownership import owner_reference

ANNOTATION = "trainmaster.dev/resilience-policy"
ANNOTATED = f"metadata.annotations[{ANNOTATION}]"
FIELD = "spec.resiliencePolicy"
OWN = {"maxRestarts": 5, "restartStrategy": "BlockingRecreate"}


def runtime(policy: JsonObject | None = None, **spec: Any) -> JsonObject:
    """A runtime of an initializer and a trainer, whose pods fail seven times in place unless told otherwise."""
    fetches = replicated_job("dataset-initializer", ancestor="dataset-initializer")
    fetches["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "dataset-initializer"
    trains = replicated_job()
    trains["template"]["spec"]["backoffLimit"] = 7
    trains["template"]["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    made = runtime_object(fetches, trains, policy={"torch": {}}, **spec)
    if policy is not None:
        made["spec"]["resiliencePolicy"] = policy
    return made


def annotated(policy: Any, **spec: Any) -> JsonObject:
    job = trainjob_object(**spec)
    job["metadata"]["annotations"] = {ANNOTATION: policy if isinstance(policy, str) else json.dumps(policy)}
    return job


def built(job: JsonObject, on: JsonObject) -> JsonObject:
    return jobset(parse_trainjob(job), parse_runtime(on))


def test_a_policy_becomes_failure_policies_of_the_jobset_and_its_jobs() -> None:
    """One pod that fails ends its Job, and the JobSet counts, but for disruptions and exit codes with a meaning."""
    policy = {"maxRestarts": 3, "exitCodes": {"fail": [2], "retry": [75, 76]}, "gracePeriod": "1m30s"}
    made = built(trainjob_object(resiliencePolicy=policy), runtime())
    assert made["spec"]["failurePolicy"] == {
        "maxRestarts": 3,
        "rules": [
            {
                "name": name,
                "action": action,
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": [f"matching FailJob rule at index {index}$"],
            }
            for index, (name, action) in enumerate(
                [
                    ("Disrupted", "RestartJobSetAndIgnoreMaxRestarts"),
                    ("FailCode", "FailJobSet"),
                    ("RetryCode", "RestartJobSetAndIgnoreMaxRestarts"),
                ]
            )
        ],
    }
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    codes = [
        {"action": "FailJob", "onExitCodes": {"containerName": "node", "operator": "In", "values": values}}
        for values in ([2], [75, 76])
    ]
    for position, rules in enumerate(([disrupted], [disrupted, *codes])):
        spec = job_spec(made, position)
        assert (spec["backoffLimit"], spec["podFailurePolicy"]) == (0, {"rules": rules})
        pod = spec["template"]
        assert pod["metadata"]["labels"]["trainmaster.dev/resilience"] == "true"
        assert (pod["spec"]["restartPolicy"], pod["spec"]["terminationGracePeriodSeconds"]) == ("Never", 90)
        [container] = pod["spec"]["containers"]
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_without_a_policy_all_stays_as_it_is() -> None:
    made = built(trainjob_object(), runtime())
    assert (job_spec(made, 1)["backoffLimit"], "failurePolicy" in made["spec"]) == (7, False)
    assert "trainmaster.dev/resilience" not in json.dumps(made)


@pytest.mark.parametrize(
    ("of_runtime", "of_annotation", "of_job", "expected"),
    [
        (None, None, {"maxRestarts": 0}, 0),
        ({"maxRestarts": 1}, None, None, 1),
        ({"maxRestarts": 1}, {"maxRestarts": 2}, {"maxRestarts": 3}, 3),
        ({"maxRestarts": 1}, {"maxRestarts": 2}, {"gracePeriod": "5s"}, 2),
        ({"maxRestarts": 1}, {"maxRestarts": None}, None, 1),
    ],
)
def test_a_trainjob_overrides_its_annotation_and_that_the_runtime_field_by_field(
    of_runtime: JsonObject | None, of_annotation: JsonObject | None, of_job: JsonObject | None, expected: int
) -> None:
    spec: Any = {} if of_job is None else {"resiliencePolicy": of_job}
    job = trainjob_object(**spec) if of_annotation is None else annotated(of_annotation, **spec)
    assert built(job, runtime(of_runtime))["spec"]["failurePolicy"]["maxRestarts"] == expected


def test_disruptions_are_charged_where_the_policy_says_so() -> None:
    made = built(trainjob_object(resiliencePolicy={"maxRestarts": 2, "disruptions": "Count"}), runtime())
    assert made["spec"]["failurePolicy"] == {"maxRestarts": 2}
    assert "podFailurePolicy" not in job_spec(made, 1)


def test_a_new_jobset_is_built_for_what_is_left_of_the_budget_off_the_avoided_nodes() -> None:
    job = trainjob_object(resiliencePolicy={"maxRestarts": 3})
    job["status"] = {
        "resilience": {
            "chargedRestarts": 2,
            "attempts": [{"number": 3, "reason": "Failed", "charged": True}],
            "avoidedNodes": [{"name": "bad", "until": "2026-01-01T01:00:00Z"}],
        }
    }
    made = built(job, runtime())
    assert made["spec"]["failurePolicy"]["maxRestarts"] == 1
    pod = job_spec(made, 1)["template"]
    assert pod["metadata"]["labels"]["trainmaster.dev/attempts-before"] == "4"
    [term] = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["bad"]}]}
    job["status"]["resilience"]["chargedRestarts"] = 9
    assert built(job, runtime())["spec"]["failurePolicy"]["maxRestarts"] == 0


def test_what_the_runtime_says_of_failures_stays() -> None:
    """The rest of a policy holds beside it."""
    on = runtime(failurePolicy=OWN)
    made = built(trainjob_object(resiliencePolicy={"maxRestarts": 0, "gracePeriod": "5s"}), on)
    assert made["spec"]["failurePolicy"] == OWN
    spec = job_spec(made, 1)
    assert (spec["backoffLimit"], spec["template"]["spec"]["terminationGracePeriodSeconds"]) == (7, 5)


BAD: list[tuple[JsonObject, str, str]] = [
    ({"maxRestart": 3}, ".maxRestart", 'is no field (did you mean "maxRestarts"?)'),
    ({"maxRestarts": -1}, ".maxRestarts", "must be between 0 and 999999"),
    ({"maxRestarts": 1_000_000}, ".maxRestarts", "must be between 0 and 999999"),
    ({"disruptions": "ignore"}, ".disruptions", 'supported values: "Ignore", "Count"'),
    ({"gracePeriod": "0s"}, ".gracePeriod", "must be between 1s and 8760h"),
    ({"gracePeriod": "99999h"}, ".gracePeriod", "must be between 1s and 8760h"),
    ({"gracePeriod": "2 minutes"}, ".gracePeriod", "must be a duration as Go writes it, for instance 90s"),
    ({"progress": {"within": "0.5s"}}, ".progress.within", "must be between 1s and 8760h"),
    ({"progress": {"within": "5m", "action": "Kill"}}, ".progress.action", "supported values"),
    ({"exitCodes": {"fail": [0]}}, ".exitCodes", "must be between 1 and 255: 0 is no failure"),
    ({"exitCodes": {"fail": [3], "retry": [3]}}, ".exitCodes.retry", "is in fail as well"),
    ({"nodes": {"avoidAfter": 0}}, ".nodes.avoidAfter", "must be between 1 and 100"),
    ({"logs": [{"name": "a", "pattern": "(a"}]}, ".logs[0].pattern", "is no regular expression of RE2"),
    ({"logs": [{"name": "a", "pattern": "(?=b)"}]}, ".logs[0].pattern", "no lookaround and no backreferences"),
    ({"logs": [{"name": "a", "pattern": "x{1001}"}]}, ".logs[0].pattern", "is no regular expression of RE2"),
    ({"logs": [{"name": "A rule", "pattern": "a"}]}, ".logs[0].name", "must match"),
    ({"logs": [{"name": "a", "pattern": "a"}, {"name": "a", "pattern": "b"}]}, ".logs[1].name", "Duplicate value"),
    ({"logs": [{"name": "a", "pattern": "a", "evry": "1m"}]}, ".logs[0].evry", 'did you mean "every"?'),
]


@pytest.mark.parametrize(("policy", "field", "detail"), BAD)
def test_a_bad_policy_is_refused_with_its_field_wherever_it_stands(policy: JsonObject, field: str, detail: str) -> None:
    answers = {
        ANNOTATED: validate(annotated(policy), runtime()),
        FIELD: validate(trainjob_object(resiliencePolicy=policy), runtime()),
    }
    for path, result in answers.items():
        assert f"{path}{field}: " in result.message, path
        assert detail in result.message
    of_runtime = validate_runtime(runtime(policy), None)
    assert f"{FIELD}{field}: " in of_runtime.message
    assert detail in of_runtime.message


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "must be a policy as JSON, as spec.resiliencePolicy is: "),
        ("maxRestarts: 3", "must be a policy as JSON"),
        ("[]", "must be an object"),
        ('{"maxRestarts": "three"}', "must be"),
        ("1" * 40_000, "must have at most 32768 characters"),
    ],
)
def test_an_annotation_that_holds_no_policy_is_refused(text: str, detail: str) -> None:
    result = validate(annotated(text), runtime())
    assert result.message.startswith(ANNOTATED)
    assert detail in result.message
    # Of a job that is stored already, only if it is changed.
    assert not validate(annotated(text), runtime(), old=trainjob_object()).allowed
    assert validate(annotated(text), runtime(), old=annotated(text)).allowed


@pytest.mark.parametrize(
    ("policy", "field"),
    [({"maxRestarts": 2}, "maxRestarts"), ({"disruptions": "Ignore"}, "disruptions"), ({"exitCodes": {}}, "exitCodes")],
)
def test_a_policy_that_contradicts_the_runtime_is_refused(policy: JsonObject, field: str) -> None:
    stays = "which stays as it is; remove one of the two"
    on = runtime(failurePolicy=OWN)
    for job, path in ((trainjob_object(resiliencePolicy=policy), FIELD), (annotated(policy), ANNOTATED)):
        assert validate(job, on).message == (
            f"{path}.{field}: Forbidden: the runtime has spec.template.spec.failurePolicy, {stays}"
        )
    on = runtime(policy)
    on["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["podFailurePolicy"] = {"rules": []}
    on["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["podFailurePolicy"] = {
        "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    }
    place = "spec.template.spec.replicatedJobs[1].template.spec.podFailurePolicy"
    assert validate_runtime(on, None).message == f"{FIELD}.{field}: Forbidden: the runtime has {place}, {stays}"


@pytest.mark.parametrize(
    ("policy", "spec", "warning"),
    [
        ({"maxRestarts": 0}, {"failurePolicy": OWN}, "maxRestarts: has no effect: spec.template.spec.failurePolicy of"),
        ({"restartWindow": "1h"}, {}, "restartWindow: has no effect without maxRestarts"),
    ],
)
def test_what_a_policy_will_not_do_is_a_warning(policy: JsonObject, spec: JsonObject, warning: str) -> None:
    [told] = validate(trainjob_object(resiliencePolicy=policy), runtime(**spec)).warnings
    assert told.startswith(f"{FIELD}.{warning}")
    result = validate_runtime(runtime(policy, **spec), None)
    assert (result.allowed, [each for each in result.warnings if each.startswith(f"{FIELD}.{warning}")]) == (
        True,
        list(result.warnings),
    )


def owned(job: JsonObject, made: JsonObject) -> JsonObject:
    """A JobSet as the server has it."""
    reference = owner_reference(parse_trainjob(job))
    return {**made, "metadata": {**made["metadata"], "namespace": "team", "ownerReferences": [reference]}}


@pytest.mark.parametrize("suspend", [False, True])
@pytest.mark.parametrize(
    ("before", "after"),
    [({"maxRestarts": 1}, {"maxRestarts": 5}), (None, {"maxRestarts": 5}), ({"maxRestarts": 1}, None)],
)
def test_a_change_holds_for_the_next_jobset_and_leaves_this_one_as_it_is(
    before: JsonObject | None, after: JsonObject | None, suspend: bool
) -> None:
    """Most of a JobSet cannot be changed, also while it is suspended."""

    def job(policy: JsonObject | None) -> JsonObject:
        status = {"resilience": {"jobSet": "uid"}} if before else {}
        given: Any = {} if policy is None else {"resiliencePolicy": policy}
        return trainjob_object(status=status, suspend=suspend, **given)

    there = owned(job(before), built(job(before), runtime()))
    result = validate(job(after), runtime(), there, old=job(before))
    assert result.allowed
    assert [each.partition(",")[0] for each in result.warnings] == [f"{FIELD}: does not hold for what runs already"]
    assert validate(job(before), runtime(), there, old=job(before)).warnings == []
    again = companion("JobSet", parse_trainjob(job(after)), parse_runtime(runtime()), listers=FakeListers(there))
    assert again.object["spec"] == there["spec"]


def test_the_plugin_watches_pods_of_jobs_with_a_policy_alone() -> None:
    [watch] = [each for each in FRAMEWORK.watches() if each.kind == "Pod"]
    assert (watch.label_selector, watch.optional) == ("trainmaster.dev/resilience=true", True)
