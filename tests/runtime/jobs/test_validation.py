"""Rules of jobs of all kinds: what the Training Operator refuses is refused in its words, and what could run is not."""

from typing import Any

import pytest
from support.job_kinds import job_object, replica
from support.vitals import calls_of

from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.validation import check_job, validate_job
from trainmaster.runtime.jsontree import JsonObject


class AcmeJob(JobKind):
    kind = "AcmeJob"
    plural = "acmejobs"
    framework = "acme"
    replica_specs_field = "acmeReplicaSpecs"
    replica_types = ("Master", "Worker")
    leading_types = ("Master", "Worker")
    container_name = "acme"
    port_name = "acmejob-port"
    port = 4321

    def set_cluster_spec(self, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
        pod["spec"]["containers"][0].setdefault("env", []).append({"name": "RANK", "value": str(index)})


class LenientJob(AcmeJob):
    kind = "LenientJob"
    other_types = True


class OwnJob(AcmeJob):
    kind = "OwnJob"
    own_rules = True


KIND = AcmeJob()
SPECS = "spec.acmeReplicaSpecs"
BOUND = "the maxReplicas of the manager's configuration"
DNS_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def valid(**spec: Any) -> JsonObject:
    return job_object(KIND, {"Master": 1, "Worker": 2}, **spec)


def with_replica(**fields: Any) -> JsonObject:
    return job_object(KIND, {"Worker": {**replica(KIND), **fields}})


def with_container(**fields: Any) -> JsonObject:
    return job_object(KIND, {"Worker": replica(KIND, **fields)})


CONTAINERS = f"{SPECS}[Worker].template.spec.containers"
REFUSED = {
    "what cannot be read": (
        valid(runPolicy={"backoffLimit": "many"}),
        'the AcmeJob cannot be read: spec.runPolicy.backoffLimit: must be an integer, got "many"',
    ),
    "long name": (
        job_object(KIND, {"Worker": 1}, name="a" * 64),
        f'metadata.name: Invalid value: "{"a" * 64}": should match: must be no more than 63 characters',
    ),
    "empty replica specs": (job_object(KIND, {}), f"{SPECS}: Required value: must be required"),
    "negative replicas": (
        with_replica(replicas=-1),
        f"{SPECS}[Worker].replicas: Invalid value: -1: must be greater than or equal to 0",
    ),
    "more replicas than a job may have": (
        with_replica(replicas=10_001),
        f"{SPECS}[Worker].replicas: Invalid value: 10001: must be less than or equal to 10000, {BOUND}",
    ),
    "too many pods": (
        job_object(KIND, {"Master": 1, "Worker": 10_000}),
        f"{SPECS}: Forbidden: a job may have 10000 pods at most, {BOUND}, and this one has 10001",
    ),
    "one type twice": (
        job_object(KIND, {"worker": 1, "WORKER": 1}),
        f'{SPECS}[worker]: Duplicate value: "worker": it is the same as WORKER',
    ),
}


@pytest.mark.parametrize(("obj", "message"), REFUSED.values(), ids=REFUSED)
def test_what_can_never_work_is_refused_in_the_words_of_the_original(obj: JsonObject, message: str) -> None:
    assert validate_job(KIND, obj, None).message == message


WARNED = {
    "minAvailable": (
        valid(runPolicy={"schedulingPolicy": {"minAvailable": 4}}),
        "spec.runPolicy.schedulingPolicy.minAvailable: the job has 3 pods, so a gang scheduler waits for 4 for ever",
    ),
    "backoffLimit": (
        valid(runPolicy={"backoffLimit": -1}),
        "spec.runPolicy.backoffLimit: -1 is less than 0: the job fails at once",
    ),
    "activeDeadlineSeconds": (
        valid(runPolicy={"activeDeadlineSeconds": 0}),
        "spec.runPolicy.activeDeadlineSeconds: 0 is less than 1: the job fails at once",
    ),
    "ttlSecondsAfterFinished": (
        valid(runPolicy={"ttlSecondsAfterFinished": -1}),
        "spec.runPolicy.ttlSecondsAfterFinished: -1 is less than 0: the job is deleted as soon as it has ended",
    ),
    "no pods": (job_object(KIND, {"Worker": 0}), f"{SPECS}: there are no replicas: the job has no pods"),
    "restartPolicy of the template": (
        with_replica(template={"spec": {"containers": [{"name": "acme", "image": "a"}], "restartPolicy": "Always"}}),
        (
            f"{SPECS}[Worker].template.spec.restartPolicy: Restart policy in pod template will be overwritten by "
            "restart policy in replica spec"
        ),
    ),
    "variable": (
        with_container(env=[{"name": "A", "value": "1"}, {"name": "RANK", "value": "7"}]),
        f"{CONTAINERS}[0].env[1]: RANK has no effect: the operator sets it",
    ),
}


@pytest.mark.defect("V1-B17")
@pytest.mark.parametrize(("obj", "warning"), WARNED.values(), ids=WARNED)
def test_what_behaves_otherwise_than_its_author_thinks_comes_with_a_warning(obj: JsonObject, warning: str) -> None:
    result = validate_job(KIND, obj, None)
    assert (result.allowed, list(result.warnings)) == (True, [warning])


@pytest.mark.parametrize("kind", load_job_kinds(), ids=lambda kind: kind.kind)
def test_a_job_of_more_pods_than_a_cluster_has_takes_no_time(kind: JobKind) -> None:
    """Its pods would be told of each other: two thousand million names."""
    result = validate_job(kind, job_object(kind, dict.fromkeys(kind.replica_types, 2**31 - 1)), None)
    path = f"spec.{kind.replica_specs_field}[{kind.replica_types[0]}].replicas"
    assert result.message == f"{path}: Invalid value: 2147483647: must be less than or equal to 10000, {BOUND}"


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (("Foo", "foo"), f'{SPECS}[foo]: Duplicate value: "foo": it is the same as Foo'),
        (
            ("my_type",),
            (
                f'{SPECS}[my_type]: Invalid value: "my_type": its pods and Services would be called "demo-my_type-0": '
                f"{DNS_1035}"
            ),
        ),
    ],
)
def test_types_of_a_lenient_kind_make_names(types: tuple[str, ...], message: str) -> None:
    kind = LenientJob()
    assert validate_job(kind, job_object(kind, {"Worker": 1, **dict.fromkeys(types, 1)}), None).message == message


def test_a_kind_with_rules_of_its_own_has_no_others() -> None:
    kind = OwnJob()
    assert validate_job(kind, job_object(kind, {"Tracker": replica(kind, name="main")}, name="1.b"), None).allowed


MANAGED = "kueue.x-k8s.io/multikueue"
OWN = "kubeflow.org/training-operator"


@pytest.mark.defect("V1-B4")
@pytest.mark.parametrize(
    ("before", "after", "shown"), [(None, MANAGED, f'"{MANAGED}"'), (OWN, None, "null"), (OWN, MANAGED, f'"{MANAGED}"')]
)
def test_who_manages_a_job_cannot_change(before: str | None, after: str | None, shown: str) -> None:
    old, new = (valid(runPolicy={} if each is None else {"managedBy": each}) for each in (before, after))
    assert validate_job(KIND, new, old).message == (
        f"spec.runPolicy.managedBy: Invalid value: {shown}: field is immutable"
    )


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"metadata": None, "spec": None},
        {"spec": {"acmeReplicaSpecs": []}},
        {"spec": {"acmeReplicaSpecs": {"Worker": None}}},
        {"spec": {"acmeReplicaSpecs": {"Worker": {"template": {"spec": None}}}}},
        {"spec": {"acmeReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [None]}}}}}},
        {"spec": {"acmeReplicaSpecs": {"Worker": {"replicas": "1"}}}},
        {"spec": {"runPolicy": []}},
        {"spec": {"runPolicy": {"managedBy": {}}}},
    ],
)
def test_odd_objects_are_refused_and_nothing_fails(obj: JsonObject) -> None:
    assert not validate_job(KIND, obj, None).allowed


def test_a_job_that_nobody_admitted_is_checked_for_what_becomes_of_it() -> None:
    """Before it is worked on: not its name nor its manager, which are as they are."""
    obj = job_object(KIND, {"Worker": replica(KIND, name="main")}, name="1bad", runPolicy={"managedBy": "x"})
    found = [str(each) for each in check_job(parse_job(KIND, obj)) if isinstance(each, FieldError)]
    assert found == [f"{CONTAINERS}: Required value: must have at least one container with name acme"]


def test_the_work_of_a_review_grows_with_the_number_of_variables_not_with_its_square() -> None:
    """Each name twice, the second time with another value: only the last one counts."""

    def work(names: int) -> int:
        once = [{"name": f"A{n}", "value": "1"} for n in range(names)]
        twice = [*once, *({**each, "value": "2"} for each in once)]
        job = job_object(KIND, {"Master": 1, "Worker": 1})
        job["spec"]["acmeReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"] = twice
        return calls_of(lambda: validate_job(KIND, job, None))

    assert work(400) < 5 * work(100)
