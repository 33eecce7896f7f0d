"""Policies called `custom`: what is wrong with them is said by field, of runtimes and of their TrainJobs."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from support.objects import runtime_object, trainjob, trainjob_object
from support.validation import validate, validate_runtime

from trainmaster.runtime.api.decoding import parse_runtime
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.calls import PluginQuarantined
from trainmaster.runtime.framework.models import SecretFile
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS
from trainmaster.runtime.resolver import new_info, resolve


class Stage(BaseModel):
    """A part of the pipeline."""

    model_config = ConfigDict(extra="forbid")

    name: str
    gpus: int = Field(default=0, ge=0)

    @field_validator("name")
    @classmethod
    def _is_lower_case(cls, name: str) -> str:
        if name != name.lower():
            raise ValueError("must be in lower case")
        return name


class Pipeline(BaseModel):
    """What the plugin is told."""

    stages: list[Stage] = Field(min_length=1)
    token: SecretFile | None = None

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Pipeline":
        if len({stage.name for stage in self.stages}) < len(self.stages):
            raise ValueError("two stages have one name")
        return self


class Pipelines:
    name = "pipelines"
    ml_policy_config = Pipeline

    def enforce_ml_policy(self, info: Any, config: Pipeline) -> None:
        info.labels["stages"] = str(len(config.stages))


class Gangs:
    name = "gangs"
    pod_group_policy_config = Pipeline

    def enforce_pod_group(self) -> None:
        """Nothing: what is looked at is its policy."""


class Plain:
    name = "plain"

    def enforce_ml_policy(self) -> None:
        """Nothing."""


def modelled(model: type[BaseModel], name: str = "modelled") -> Any:
    """A plugin with another model."""
    return type("Modelled", (Plain,), {"name": name, "ml_policy_config": model})()


class Fragile(BaseModel):
    region: str

    @field_validator("region")
    @classmethod
    def _known(cls, region: str) -> str:
        return {"north": "n"}[region]


FAILING = modelled(Fragile, "failing")


FRAMEWORK = Framework([Pipelines(), Gangs(), Plain()])


def runtime(config: Any = None, *, name: str = "pipelines", policy: str = "mlPolicy") -> JsonObject:
    obj = runtime_object()
    obj["spec"][policy] = {"custom": {"name": name, **({} if config is None else {"config": config})}}
    return obj


def errors(obj: JsonObject, framework: Framework = FRAMEWORK) -> list[str]:
    result = validate_runtime(obj, None, framework)
    assert not result.warnings
    return [str(error) for error in result.errors]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"stages": [{"name": "a"}]}, []),
        (None, ["stages: Required value"]),
        (
            {"stages": [{"name": 7}, {"nam": "b", "gpus": -1}]},
            [
                "stages[0].name: Invalid value: 7: Input should be a valid string",
                "stages[1].name: Required value",
                "stages[1].gpus: Invalid value: -1: Input should be greater than or equal to 0",
                'stages[1].nam: Invalid value: "b": Extra inputs are not permitted',
            ],
        ),
        ({"stages": [{"name": "A"}]}, ['stages[0].name: Invalid value: "A": must be in lower case']),
        ({"stages": [{"name": "a"}], "stage": 1}, ['stage: Invalid value: 1: unknown field (did you mean "stages"?)']),
        # What stands in the place of a file may be the secret itself.
        (
            {"stages": [{"name": "a"}], "token": "hunter2"},
            ["token: Forbidden: must be the absolute path of a file that holds the secret"],
        ),
    ],
)
def test_what_does_not_fit_the_model_is_an_error_of_the_field(config: Any, expected: list[str]) -> None:
    assert errors(runtime(config)) == [f"spec.mlPolicy.custom.config.{each}" for each in expected]


def test_what_the_model_says_of_the_whole_is_an_error_of_the_whole() -> None:
    (error,) = errors(runtime({"stages": [{"name": "a"}, {"name": "a"}]}))
    value = '{"stages":[{"name":"a"},{"name":"a"}]}'
    assert error == f"spec.mlPolicy.custom.config: Invalid value: {value}: two stages have one name"


def test_policies_of_gang_schedulers_likewise() -> None:
    assert errors(runtime({"stages": [{"name": "a"}]}, name="gangs", policy="podGroupPolicy")) == []
    assert errors(runtime({"stages": []}, name="gangs", policy="podGroupPolicy")) == [
        (
            "spec.podGroupPolicy.custom.config.stages: Invalid value: []: List should have at least 1 item after "
            "validation, not 0"
        )
    ]


@pytest.mark.parametrize(
    ("name", "policy", "text"),
    [
        ("pipeline", "mlPolicy", "no plugin of the name 'pipeline' is loaded (did you mean \"pipelines\"?)"),
        ("other", "podGroupPolicy", "no plugin of the name 'other' is loaded (there are: gangs)"),
        ("gangs", "mlPolicy", "the plugin 'gangs' serves podGroupPolicy.custom, not mlPolicy.custom"),
        ("plain", "mlPolicy", "the plugin 'plain' is loaded, but serves no mlPolicy.custom"),
    ],
)
def test_a_policy_that_no_plugin_serves_is_a_warning(name: str, policy: str, text: str) -> None:
    """It may be installed later: a runtime and its plugin come from two people."""
    obj = runtime({"any": "thing"}, name=name, policy=policy)
    result = validate_runtime(obj, None, FRAMEWORK)
    assert result.allowed
    said = f"spec.{policy}.custom.name: {text}; until one serves it, TrainJobs of this runtime are not built"
    assert result.warnings == [said]
    assert validate_runtime(obj, runtime_object(), FRAMEWORK).warnings == [said], "also if it comes by an update"


def test_a_plugin_that_did_not_load_is_named_as_such() -> None:
    framework = Framework([Plain()], not_loaded=("pipelines",))
    (warning,) = validate_runtime(runtime({}), None, framework).warnings
    assert "the plugin 'pipelines' did not load: the log of the manager says what to do; until" in warning


def test_updates_are_judged_and_what_they_leave_as_it_is_is_not() -> None:
    wrong = runtime({})
    assert not validate_runtime(wrong, runtime({"stages": [{"name": "a"}]}), FRAMEWORK).allowed
    assert validate_runtime(
        {**wrong, "metadata": {**wrong["metadata"], "labels": {"a": "b"}}}, wrong, FRAMEWORK
    ).allowed


FAILED = "plugin failing failed in config: KeyError: 'south'"


def test_a_model_that_fails_is_the_failure_of_its_plugin() -> None:
    obj = runtime({"region": "south"}, name="failing")
    assert errors(obj, Framework([FAILING])) == [
        f"spec.mlPolicy.custom.config: Internal error: cannot be checked: {FAILED}"
    ]
    result = validate_runtime(obj, None, Framework([FAILING], failure_policies={"failing": "skip"}))
    assert result.allowed
    assert result.warnings == [f"spec.mlPolicy.custom.config: is not checked: {FAILED}"]


def test_a_model_cannot_change_what_is_judged() -> None:
    class Greedy(BaseModel):
        stages: list[Any]

        @model_validator(mode="before")
        @classmethod
        def _take(cls, given: dict[str, Any]) -> dict[str, Any]:
            given["stages"].append(object())
            return given

    obj = runtime({"stages": []}, name="modelled")
    assert errors(obj, Framework([modelled(Greedy)])) == []
    assert obj == runtime({"stages": []}, name="modelled")


def test_a_wrong_value_that_is_no_json_is_not_shown() -> None:
    class Odd(BaseModel):
        when: int

        @field_validator("when", mode="before")
        @classmethod
        def _other(cls, value: Any) -> Any:
            return object()

    (error,) = errors(runtime({"when": 1}, name="modelled"), Framework([modelled(Odd)]))
    assert error == "spec.mlPolicy.custom.config.when: Forbidden: Input should be a valid integer"


def test_trainjobs_of_a_wrong_runtime_are_refused_with_the_path_in_the_runtime() -> None:
    """It was stored before the plugin was there, for instance."""
    result = validate(trainjob_object(), runtime({"stages": [{"name": "A"}]}), framework=FRAMEWORK)
    assert result.message == (
        'spec.runtimeRef: Invalid value: {"name":"rt","apiGroup":"trainer.kubeflow.org","kind":"TrainingRuntime"}: '
        "the runtime cannot be used: spec.mlPolicy.custom.config.stages[0].name: must be in lower case"
    )
    with pytest.raises(PluginFailed) as caught:
        resolve(trainjob(), parse_runtime(runtime({"stages": [{"name": "a", "gpus": "x"}], "stage": 1})), FRAMEWORK)
    assert caught.value.rejected
    assert str(caught.value) == (
        "the runtime cannot be used: "
        'spec.mlPolicy.custom.config.stage: unknown field (did you mean "stages"?); '
        "spec.mlPolicy.custom.config.stages[0].gpus: Input should be a valid integer, unable to parse string as an "
        'integer, got "x"'
    )
    result = validate(trainjob_object(), runtime({"region": "south"}, name="failing"), framework=Framework([FAILING]))
    assert result.message == f"spec.runtimeRef: Internal error: {FAILED}"
    assert validate(trainjob_object(), runtime({"stages": [{"name": "a"}]}), framework=FRAMEWORK).allowed


def _refusing(plugin: str, phase: str, job: str, make: Callable[[], Any]) -> Any:
    """Let no call of a plugin through, as the guard of a manager does while it is quarantined."""
    raise PluginQuarantined("is quarantined")


def test_a_plugin_that_must_not_be_called_concerns_nobody_but_those_who_have_its_policy() -> None:
    framework = Framework([Pipelines(), Gangs()], guard=_refusing)
    job, plain = trainjob(), parse_runtime(runtime_object())
    assert framework.validate(new_info(job, plain), job, None, NO_LISTERS) == ([], [])
    resolve(job, plain, framework)
    with pytest.raises(PluginFailed, match="plugin pipelines is quarantined"):
        resolve(job, parse_runtime(runtime({"stages": []})), framework)
