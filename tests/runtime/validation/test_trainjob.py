"""The rules of TrainJobs: what is admitted is what will be built."""

from collections.abc import Iterable

import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.validation import patch, pods, validate

from trainmaster.runtime.api.decoding import parse_trainjob
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.framework.interface import NotReady, Rejected
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers
from trainmaster.runtime.snapshot import build_snapshot, encode_runtime
from trainmaster.runtime.validation import ValidationResult

RUNTIME = runtime_object(policy={"torch": {}})
RESERVED = {"env": [{"name": "PET_NNODES", "value": "1"}]}
REFERENCE = '{"name":"rt","apiGroup":"trainer.kubeflow.org","kind":"TrainingRuntime"}'
MISSING = (
    f'spec.runtimeRef: Invalid value: {REFERENCE}: TrainingRuntime.trainer.kubeflow.org "rt" not found: '
    "specified trainingRuntime must be created before the TrainJob is created"
)
GPU = {"nvidia.com/gpu": "1"}


def snapshot(of: JsonObject, runtime: JsonObject) -> JsonObject:
    return build_snapshot(parse_trainjob(of), encode_runtime(runtime))


# --- the runtime ---


@pytest.mark.defect("B26")
def test_a_runtime_or_resources_that_cannot_be_used_are_an_answer() -> None:
    resources = {"limits": {"cpu": "many"}}
    broken = runtime_object(replicated_job(containers=[{"name": "node", "image": "i", "resources": resources}]))
    unreadable = {**RUNTIME, "spec": {"template": 7}}
    for obj, runtime, message in (
        (trainjob_object(), broken, "the runtime cannot be used: cpu: 'many' is not a quantity"),
        (trainjob_object(), unreadable, "the runtime cannot be used: spec.template: must be an object"),
        (
            trainjob_object(trainer={"resourcesPerNode": resources}),
            RUNTIME,
            "spec.trainer.resourcesPerNode: Forbidden: cpu: 'many' is not a quantity",
        ),
    ):
        assert message in validate(obj, runtime).message


def test_a_policy_that_no_plugin_serves_is_refused() -> None:
    without = Framework([plugin for plugin in load_plugins() if plugin.name != "torch"])
    assert (
        "no installed plugin serves mlPolicy.torch" in validate(trainjob_object(), RUNTIME, framework=without).message
    )


# --- updates ---


@pytest.mark.defect("B13")
def test_an_update_is_judged_by_the_snapshot() -> None:
    old = trainjob_object(suspend=True)
    new = trainjob_object(suspend=True, trainer=RESERVED)
    jax = snapshot(old, {**RUNTIME, "spec": {**RUNTIME["spec"], "mlPolicy": {"jax": {}}}})
    assert validate(new, RUNTIME, jax, old=old).allowed
    assert validate(new, jax, old=old).allowed
    assert "must not have reserved envs" in validate(new, RUNTIME, old=old).message


@pytest.mark.defect("B13")
def test_the_snapshot_of_an_earlier_trainjob_does_not_count() -> None:
    earlier = snapshot(trainjob_object(uid="other"), RUNTIME)
    new = trainjob_object(trainer={"numNodes": 2})
    assert validate(new, earlier).message == MISSING
    assert validate(new, earlier, old=trainjob_object()).message == MISSING


@pytest.mark.defect("B13")
@pytest.mark.parametrize("status", [None, {"conditions": [{"type": "Complete", "status": "True"}]}])
def test_suspend_and_metadata_change_whatever_became_of_the_runtime(status: JsonObject | None) -> None:
    old = trainjob_object(trainer=RESERVED, status=status)
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}, "finalizers": []}}
    suspended = {**old, "spec": {**old["spec"], "suspend": True}}
    for new in (labelled, suspended):
        assert validate(new, old=old).allowed
        assert validate(new, RUNTIME, old=old).allowed


@pytest.mark.parametrize("metadata", [7, {"labels": 7, "annotations": "sidecar.istio.io/inject"}])
def test_metadata_that_nobody_can_read_is_no_crash(metadata: object) -> None:
    """An API server sends none; whoever else asks the webhook may."""
    obj = {**trainjob_object(), "metadata": metadata}
    assert validate(obj, RUNTIME, old=obj).allowed


@pytest.mark.defect("B13")
def test_nothing_stands_in_the_way_of_a_deletion() -> None:
    old = trainjob_object()
    new = trainjob_object(trainer=RESERVED)
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert validate(new, old=old).allowed


def test_a_finished_trainjob_is_not_built_and_so_not_judged_by_a_runtime() -> None:
    status = {"conditions": [{"type": "Failed", "status": "True"}]}
    old = trainjob_object(status=status)
    assert validate(trainjob_object(status=status, activeDeadlineSeconds=5), old=old).allowed
    assert validate(trainjob_object(activeDeadlineSeconds=5), old=trainjob_object()).message == MISSING


@pytest.mark.defect("U13")
def test_another_controllers_trainjob_is_not_judged_by_the_runtimes_of_this_cluster() -> None:
    assert validate(trainjob_object(managedBy="kueue.x-k8s.io/multikueue", trainer=RESERVED)).allowed
    result = validate(trainjob_object(managedBy="kueue.x-k8s.io/multikueue", runtimePatches=[patch(pods(), "bad")]))
    assert result.message.startswith("spec.runtimePatches.manager: Invalid value")


# --- numbers and names ---


@pytest.mark.parametrize("policy", [{"jax": {}}, {"torch": {}}])
def test_a_count_of_processes_that_was_stored_before_the_rule_hinders_only_what_needs_it(policy: JsonObject) -> None:
    """The schema of the original let it pass, and it cannot be changed: a queue has to be able to patch such a job."""
    runtime = runtime_object(policy=policy)
    old = trainjob_object(suspend=True, trainer={"numProcPerNode": 0})
    patched = trainjob_object(
        suspend=True, trainer={"numProcPerNode": 0}, runtimePatches=[patch(pods(nodeSelector={"a": "1"}))]
    )
    message = validate(patched, runtime, snapshot(old, runtime), old=old).message
    refused = "spec: Forbidden: numProcPerNode of spec.trainer is 0, but must be greater than or equal to 1"
    assert message == (refused if "torch" in policy else "")


@pytest.mark.defect("U3")
@pytest.mark.parametrize(("nodes", "longest"), [(10, 48), (11, 47)])
def test_the_longest_name_of_a_pod_counts(nodes: int, longest: int) -> None:
    trainer = {"numNodes": nodes}
    assert validate(trainjob_object("a" * longest, trainer=trainer), RUNTIME).allowed
    name = "a" * (longest + 1)
    pod = f"{name}-node-0-{nodes - 1}-abcde"
    assert validate(trainjob_object(name, trainer=trainer), RUNTIME).message == (
        f'metadata.name: Invalid value: "{name}": the name of a pod, for instance {pod}, would have 64 characters, and '
        "63 are possible; make the name of the TrainJob at least 1 characters shorter"
    )


@pytest.mark.defect("U3")
def test_every_replicated_job_counts() -> None:
    other = replicated_job("a-rather-long-name-of-a-job", ancestor=None, replicas=12)
    runtime = runtime_object(replicated_job(), other, policy={"torch": {}})
    assert validate(trainjob_object("a" * 24), runtime).allowed
    assert "a-rather-long-name-of-a-job-11-0-abcde" in validate(trainjob_object("a" * 25), runtime).message


# --- plugins ---


class Validator:
    """A plugin with something to say."""

    name = "Validator"

    def __init__(
        self, *results: FieldError | FieldWarning, error: Exception | None = None, build_error: Exception | None = None
    ) -> None:
        self._results, self._error, self._build_error = results, error, build_error

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterable[FieldError | FieldWarning]:
        if self._error:
            raise self._error
        return self._results

    def enforce_pod_spec(self, info: Info, job: TrainJob) -> None:
        if self._build_error:
            raise self._build_error


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Validator(error=KeyError("x")), "spec: Internal error: plugin Validator failed in validate: KeyError: 'x'"),
        (
            Validator(build_error=KeyError("x")),
            "spec: Internal error: plugin Validator failed in enforce_pod_spec: KeyError: 'x'",
        ),
        (Validator(build_error=Rejected("too many nodes")), "spec: Forbidden: too many nodes"),
        (Validator(FieldError("spec.x", "no", value=1)), "spec.x: Invalid value: 1: no"),
    ],
)
def test_what_would_fail_in_a_plugin_later_is_refused(plugin: Validator, message: str) -> None:
    framework = Framework([*load_plugins(), plugin])
    assert validate(trainjob_object(), RUNTIME, framework=framework).message == message


def test_what_cannot_be_built_yet_is_admitted_with_a_warning() -> None:
    """It may have come by the time the TrainJob is built; if not, the condition Blocked says the same."""
    framework = Framework([*load_plugins(), Validator(build_error=NotReady("no authority"))])
    result = validate(trainjob_object(), RUNTIME, framework=framework)
    assert result == ValidationResult([], ["spec: cannot be built yet: no authority"])


def test_warnings_of_plugins_do_not_refuse() -> None:
    framework = Framework([*load_plugins(), Validator(FieldWarning("spec.x", "hm"))])
    assert validate(trainjob_object(), RUNTIME, framework=framework) == ValidationResult([], ["spec.x: hm"])


def test_what_cannot_be_read_is_refused() -> None:
    result = validate(trainjob_object(trainer={"numNodes": "2"}), RUNTIME)
    assert result.message == 'the TrainJob cannot be read: spec.trainer.numNodes: must be an integer, got "2"'


# --- what the schema lets one add later ---


@pytest.mark.defect("U2")
@pytest.mark.parametrize(
    ("before", "after", "warned"), [(False, False, True), (True, False, False), (False, True, False)]
)
def test_what_is_added_to_a_job_that_runs_has_no_effect_yet(before: bool, after: bool, warned: bool) -> None:
    """The schema admits it, so clients may rely on it; nobody should have to find out why nothing changes."""
    old = trainjob_object(suspend=before)
    added = trainjob_object(suspend=after, trainer={"image": "train:2"})
    remedy = "for that, suspend the TrainJob, delete its JobSet and resume it"
    message = f"spec.trainer: does not change what runs already: {remedy}"
    assert validate(added, RUNTIME, snapshot(old, RUNTIME), old=old) == ValidationResult(
        [], [message] if warned else []
    )
