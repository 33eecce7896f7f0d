"""The framework: running plugins in their order, and what they return and raise, which is no other plugin's failure."""

import inspect
import itertools
from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from support.objects import runtime, trainjob
from support.plugins import Builder, Enforcer

from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.interface import Desired, Rejected, StatusReport
from trainmaster.runtime.framework.signatures import PHASES
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.resolver import PolicyUnserved, new_info, resolve


def test_the_first_plugin_that_knows_reports_the_status() -> None:
    class Reporter:
        def __init__(self, name: str, report: StatusReport | None) -> None:
            self.name, self.report = name, report

        def status(self, job: Any, listers: Any) -> StatusReport | None:
            return self.report

    second, third = (StatusReport(jobs_status=[{"name": name}]) for name in ("second", "third"))
    framework = Framework([Reporter("one", None), Reporter("three", third), Reporter("two", second)])
    assert framework.status(trainjob(), NO_LISTERS) == third
    assert Framework([Reporter("one", None)]).status(trainjob(), NO_LISTERS) is None


def test_two_plugins_cannot_build_the_same_object() -> None:
    framework = Framework([Builder("one"), Builder("two")])
    with pytest.raises(PluginFailed, match="ValueError: plugin one builds ConfigMap made as well"):
        framework.resolve(new_info(trainjob(), runtime()), trainjob(), NO_LISTERS)


def test_a_plugin_that_raises_is_named_and_keeps_the_cause() -> None:
    framework = Framework([Builder(error=KeyError("gone"))])
    with pytest.raises(PluginFailed, match="plugin Builder failed in build: KeyError: 'gone'") as caught:
        resolve(trainjob(), runtime(), framework)
    assert isinstance(caught.value.__cause__, KeyError)
    assert not caught.value.rejected


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "watch_extension"])
@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit(), CancelledError(), BaseExceptionGroup("x", [SystemExit()])]
)
def test_whatever_a_plugin_raises_is_its_failure_for_that_job(phase: str, error: BaseException) -> None:
    """Neither the process of all TrainJobs nor the task of one ends by it."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    fail.__signature__ = inspect.signature(getattr(PHASES[phase], phase))  # type: ignore[attr-defined]
    framework = Framework([type("Leaver", (), {"name": "leaver", "watch_extension": lambda self: (), phase: fail})()])
    info = new_info(trainjob(), runtime())
    calls: dict[str, Callable[[], object]] = {
        "validate": lambda: framework.validate(info, trainjob(), None, NO_LISTERS),
        "status": lambda: framework.status(trainjob(), NO_LISTERS),
    }
    with pytest.raises(PluginFailed, match=rf"^plugin leaver failed in {phase}: {type(error).__name__}: ") as caught:
        calls.get(phase, lambda: framework.resolve(info, trainjob(), NO_LISTERS))()
    assert caught.value.__cause__ is error


def test_an_error_whose_text_cannot_be_sent_is_told_all_the_same() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise KeyError

    for error, text in ((Odd(), "and its text cannot be read"), (ValueError("a\ud800b"), r"ValueError: a\?b")):
        with pytest.raises(PluginFailed, match=text) as caught:
            resolve(trainjob(), runtime(), Framework([Builder(error=error)]))
        assert str(caught.value).encode()


def test_a_rejection_speaks_for_itself() -> None:
    framework = Framework([Builder(error=Rejected("there is no such queue"))])
    with pytest.raises(PluginFailed, match=r"^there is no such queue$") as caught:
        resolve(trainjob(), runtime(), framework)
    assert caught.value.rejected


def test_each_call_is_observed_with_its_result() -> None:
    seen: list[tuple[str, str, bool]] = []
    framework = Framework(
        [Enforcer("ok"), Builder(error=ValueError())],
        observer=lambda plugin, phase, seconds, error: seen.append((plugin, phase, error is None)),
    )
    with pytest.raises(PluginFailed):
        resolve(trainjob(), runtime(), framework)
    assert seen == [("ok", "enforce_ml_policy", True), ("Builder", "build", False)]


@pytest.mark.parametrize(
    ("attributes", "policy", "runs"),
    [
        ({}, {}, True),
        ({"policies": ("torch",)}, {}, False),
        ({"policies": ("torch",)}, {"torch": {}}, True),
        ({"policies": ("torch", "jax")}, {"jax": {}}, True),
        ({"policies": ("torch",), "applies_to": lambda info, job: True}, {}, True),
        ({"applies_to": lambda info: info.ml_policy.num_nodes == 2}, {"numNodes": 2}, True),
        ({"applies_to": lambda job: job.metadata.name == "other"}, {}, False),
    ],
)
def test_a_plugin_runs_for_whom_it_serves(attributes: dict[str, Any], policy: dict[str, Any], runs: bool) -> None:
    """It has no say about others either, whatever becomes of it."""
    asked: list[str] = []

    class Plugin:
        name = "plugin"

        def enforce_ml_policy(self) -> None:
            asked.append("enforce_ml_policy")

        def build(self) -> tuple[()]:
            asked.append("build")
            return ()

        def validate(self) -> tuple[()]:
            asked.append("validate")
            return ()

    plugin = Plugin()
    for name, value in attributes.items():
        setattr(plugin, name, value)
    framework = Framework([plugin, Enforcer("others", policies=("torch", "jax"))])
    resolve(trainjob(), runtime(policy=policy), framework)
    framework.validate(new_info(trainjob(), runtime(policy=policy)), trainjob(), None, NO_LISTERS)
    assert asked == (["enforce_ml_policy", "build", "validate"] if runs else [])


def test_a_plugin_takes_the_place_of_others_for_whom_it_serves() -> None:
    theirs, ours = Builder("theirs"), Builder("ours", object_name="ours")
    ours.replaces = ("theirs",)  # type: ignore[attr-defined]
    ours.applies_to = lambda job: job.metadata.name == "demo"  # type: ignore[attr-defined]
    framework = Framework([theirs, ours])
    for name, made in (("demo", "ours"), ("other", "made")):
        built = resolve(trainjob(name), runtime(), framework).objects
        assert [each.object["metadata"]["name"] for each in built] == [made]


class Region(BaseModel):
    """The policy of a plugin."""

    region: str


class Regional:
    """Serves `mlPolicy.custom` of its name."""

    name = "regional"
    ml_policy_config = Region

    def enforce_ml_policy(self, info: Any, config: Region) -> None:
        info.labels["region"] = config.region


def custom(name: str, config: Any) -> dict[str, Any]:
    return {"custom": {"name": name, "config": config}}


def test_a_plugin_gets_the_custom_policy_of_its_name() -> None:
    framework = Framework([Regional()])
    resolution = resolve(trainjob(), runtime(policy=custom("regional", {"region": "north"})), framework)
    assert resolution.info.labels == {"region": "north"}
    assert resolve(trainjob(), runtime(), framework).info.labels == {}
    with pytest.raises(PolicyUnserved, match=r"no installed plugin serves mlPolicy.custom of the name 'other'"):
        resolve(trainjob(), runtime(policy=custom("other", {})), framework)


async def coroutine() -> None:
    """Would have to be awaited."""


MADE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}


@pytest.mark.parametrize(
    ("built", "message"),
    [
        (None, "build must return Desired objects, not NoneType"),
        (MADE, "build must return Desired objects, not dict"),
        (Desired([]), "without apiVersion, kind and metadata.name"),  # type: ignore[arg-type] # the mistake
        (Desired({}), "without apiVersion, kind and metadata.name"),
        (Desired(MADE | {"metadata": {"name": ""}}), "without apiVersion, kind and metadata.name"),
        (Desired(MADE | {"metadata": {"name": "x", "namespace": "other"}}), "namespace 'other'"),
        (Desired(MADE | {"metadata": {"name": "x", "ownerReferences": [{"uid": "z"}]}}), "the TrainJob its controller"),
        (Desired(MADE | {"data": {"a": {1, 2}}}), "not JSON serializable: set"),
        (Desired(MADE, "always"), "when to write ConfigMap made must be an ApplyWhen, not 'always'"),  # type: ignore[arg-type]
    ],
)
def test_garbage_of_a_plugin_is_that_plugins_failure(built: Any, message: str) -> None:
    class Careless:
        name = "Careless"

        def build(self, info: Any, job: Any, listers: Any) -> list[Any]:
            return [built]

    framework = Framework([Careless()])
    with pytest.raises(PluginFailed, match=r"^plugin Careless failed in build: ") as caught:
        framework.resolve(new_info(trainjob(), runtime()), trainjob(), NO_LISTERS)
    assert message in str(caught.value)


def test_endless_results_are_the_failure_of_the_plugin_that_yields_them() -> None:
    class Endless:
        name = "Endless"

        def build(self, info: Any, job: Any, listers: Any) -> Any:
            yield from itertools.repeat(Desired(MADE))

    with pytest.raises(PluginFailed, match=r"plugin Endless failed in build: .*it returns more than 100,000 results"):
        resolve(trainjob(), runtime(), Framework([Endless()]))


@pytest.mark.parametrize("result", [coroutine(), (each for each in "ab")])
def test_an_enforcing_call_that_has_not_run_yet_is_a_failure(result: Any) -> None:
    """A wrapped method may return what would have to be awaited, or iterated, and nobody does."""

    class Waiting:
        name = "Waiting"

        def pre_build(self, info: Any, job: Any) -> Any:
            return result

    with pytest.raises(PluginFailed, match="must change what it is given and return nothing, not "):
        resolve(trainjob(), runtime(), Framework([Waiting()]))


@pytest.mark.parametrize(
    "report",
    [
        "running",
        StatusReport(conditions=[{"type": "Complete"}]),
        StatusReport(conditions=[{"type": "Complete", "status": "True", "reason": {1}}]),
        StatusReport(jobs_status=[1]),  # type: ignore[list-item] # the mistake
    ],
)
def test_garbage_of_a_status_plugin_is_its_failure(report: Any) -> None:
    class Reporter:
        name = "Reporter"

        def status(self, job: Any, listers: Any) -> Any:
            return report

    with pytest.raises(PluginFailed, match=r"^plugin Reporter failed in status: "):
        Framework([Reporter()]).status(trainjob(), NO_LISTERS)


@pytest.mark.parametrize(
    "results",
    [
        ["spec.x: no"],
        None,
        "no",
        [FieldError("spec.x", 1)],  # type: ignore[arg-type] # the mistake
        [FieldError("spec.x", "no", value={1})],
    ],
)
def test_garbage_of_a_validating_plugin_is_its_failure(results: Any) -> None:
    class Validator:
        name = "Validator"

        def validate(self, info: Any, job: Any, old: Any, listers: Any) -> Any:
            return results

    with pytest.raises(PluginFailed, match=r"^plugin Validator failed in validate: TypeError: "):
        Framework([Validator()]).validate(new_info(trainjob(), runtime()), trainjob(), None, NO_LISTERS)


def test_errors_and_warnings_of_plugins_are_kept_apart() -> None:
    class Validator:
        name = "Validator"

        def validate(self, info: Any, job: Any, old: Any, listers: Any) -> Any:
            yield FieldWarning("spec.b", "hm")
            yield FieldError("spec.a", "no")

    errors, warnings = Framework([Validator()]).validate(new_info(trainjob(), runtime()), trainjob(), None, NO_LISTERS)
    assert (errors, warnings) == ([FieldError("spec.a", "no")], [FieldWarning("spec.b", "hm")])


class Failing(Enforcer):
    """Breaks what it is given, and then fails."""

    def __init__(self, error: Exception | None = None, **attributes: Any) -> None:
        super().__init__("failing", **attributes)
        self.error = error or KeyError("region")

    def enforce_ml_policy(self, info: Any, job: Any) -> None:
        info.template["broken"] = True
        info.trainer.pod_spec["broken"] = True
        raise self.error

    def build(self) -> Any:
        raise AssertionError("a plugin that failed is not asked again")

    def validate(self) -> Any:
        raise self.error


@pytest.mark.parametrize("how", ["its own word", "the configuration"])
def test_a_job_goes_on_without_a_plugin_that_may_be_skipped(how: str) -> None:
    """Nothing of what it did is left."""
    plugin = Failing(failure_policy="skip" if how == "its own word" else "fail")
    policies = {} if how == "its own word" else {"failing": "skip"}
    framework = Framework([plugin, Builder()], failure_policies=policies)
    expected = resolve(trainjob(), runtime(), Framework([Builder()]))
    resolution = resolve(trainjob(), runtime(), framework)
    assert resolution.objects == expected.objects
    assert resolution.info.template == expected.info.template
    assert resolution.info.trainer is not None
    assert resolution.info.trainer.job_template is resolution.info.template["replicatedJobs"][0]["template"]
    assert [str(each) for each in resolution.skipped] == [
        "plugin failing failed in enforce_ml_policy: KeyError: 'region'"
    ]
    errors, warnings = framework.validate(new_info(trainjob(), runtime()), trainjob(), None, NO_LISTERS)
    assert not errors
    assert "is not checked by the plugin failing: plugin failing failed in validate" in str(warnings[0])


class FailingLate:
    """Changes much before it fails."""

    name = "failing"
    failure_policy = "skip"
    replaces = ("replaced",)
    priority = 1

    def enforce_ml_policy(self, info: Any, job: Any) -> None:
        info.labels["failing"] = "was here"
        info.template["broken"] = True
        job.metadata.labels["failing"] = "was here"

    def build(self, info: Any) -> Any:
        info.labels["failing"] = "was here again"
        info.template["broken again"] = True
        raise KeyError("region")


def test_nothing_is_left_of_a_plugin_that_failed_late() -> None:
    """Neither what it changed in earlier phases, nor that it stood in the place of another one."""
    others = [Builder("replaced"), Builder("other", object_name="other")]
    expected = resolve(trainjob(), runtime(), Framework(others))
    resolution = resolve(trainjob(), runtime(), Framework([FailingLate(), *others]))
    assert resolution.objects == expected.objects
    assert resolution.info.labels == expected.info.labels
    assert resolution.info.template == expected.info.template
    assert [str(each) for each in resolution.skipped] == ["plugin failing failed in build: KeyError: 'region'"]


def test_a_plugin_that_cannot_say_whom_it_serves_may_be_skipped_too() -> None:
    class Undecided(FailingLate):
        def applies_to(self) -> bool:
            raise KeyError("zone")

    resolution = resolve(trainjob(), runtime(), Framework([Undecided(), Builder()]))
    assert [each.identity[2] for each in resolution.objects] == ["made"]
    assert [str(each) for each in resolution.skipped] == ["plugin failing failed in applies_to: KeyError: 'zone'"]


def test_several_plugins_may_be_skipped() -> None:
    late = FailingLate()
    late.name = "late"
    resolution = resolve(trainjob(), runtime(), Framework([Failing(failure_policy="skip"), late, Builder()]))
    assert [each.identity[2] for each in resolution.objects] == ["made"]
    assert sorted(each.plugin for each in resolution.skipped) == ["failing", "late"]
    assert "failing" not in resolution.info.labels


def test_what_a_plugin_rejects_is_rejected_whatever_becomes_of_its_failures() -> None:
    plugin = Failing(Rejected("no such region"), failure_policy="skip")
    with pytest.raises(PluginFailed, match=r"^no such region$"):
        resolve(trainjob(), runtime(), Framework([plugin]))
