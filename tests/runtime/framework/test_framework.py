"""The framework: ordering and running plugins, and keeping their failures apart."""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from support.objects import runtime, trainjob
from support.plugins import Builder, Enforcer

from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.interface import Rejected, StatusReport
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
    others = Enforcer("others", policies=("torch", "jax"))
    framework = Framework([plugin, others])
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
