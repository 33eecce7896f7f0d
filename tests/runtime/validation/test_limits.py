"""The limits of the schemas, enforced before anything expensive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.validation import patch, pods, validate, validate_runtime

from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.validation import limits, validate_trainjob
from trainmaster.runtime.yamltext import load_yaml

DEFINITIONS = Path(__file__).parents[3] / "deploy/crds"
JOBS = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs"


def limits_of(schema: JsonObject, path: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """All limits that a schema states, by path."""
    if "maxItems" in schema:
        yield path, ("items", schema["maxItems"])
    if "maxLength" in schema:
        yield path, ("length", schema["maxLength"])
    for name, below in (schema.get("properties") or {}).items():
        yield from limits_of(below, f"{path}.{name}")
    if "items" in schema:
        yield from limits_of(schema["items"], f"{path}[]")


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        ("trainjobs", limits.TRAINJOB),
        ("trainingruntimes", limits.RUNTIME),
        ("clustertrainingruntimes", limits.RUNTIME),
    ],
)
def test_the_tables_hold_every_limit_of_the_definitions(
    kind: str, table: Mapping[str, limits.Items | limits.Length]
) -> None:
    definition = load_yaml((DEFINITIONS / f"trainer.kubeflow.org_{kind}.yaml").read_bytes())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert dict(limits_of(schema["properties"]["spec"], "spec")) == {
        path: ("items" if isinstance(most, limits.Items) else "length", most) for path, most in table.items()
    }


class Untouched(Framework):
    """Plugins that nobody is to call."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} is asked for")


class Unread:
    """Listers that nobody is to ask."""

    def get(self, *_: Any) -> JsonObject | None:
        raise AssertionError("the cluster is asked")

    list = get


def refusal(obj: JsonObject) -> str:
    """What is answered to a TrainJob without a look at anything else."""
    return validate_trainjob(obj, None, framework=object.__new__(Untouched), listers=Unread()).message  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"runtimePatches": [patch(pods(), f"acme.io/m{number}") for number in range(17)]},
            "spec.runtimePatches: Too many: 17: must have at most 16 items",
        ),
        (
            {"runtimePatches": [patch({"name": "x" * 254})]},
            f"{JOBS}[0].name: Too long: may not be more than 253 bytes",
        ),
        (
            {
                "runtimePatches": [
                    patch(pods(containers=[{"name": "node", "env": [{"name": f"v{n}"} for n in range(129)]}]))
                ]
            },
            f"{JOBS}[0].template.spec.template.spec.containers[0].env: Too many: 129: must have at most 128 items",
        ),
        ({"trainer": {"image": "i" * 501}}, "spec.trainer.image: Too long: may not be more than 500 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_too_long_is_named(spec: JsonObject, message: str) -> None:
    assert refusal(trainjob_object(**spec)) == message


def test_everything_at_its_limit_is_admitted() -> None:
    patches = [patch(pods(nodeSelector={"a": "b"}), f"acme.io/m{number}") for number in range(16)]
    variables = [{"name": f"v{number}"} for number in range(128)]
    trainer = {"image": "i" * 500, "env": variables, "args": ["x"] * 128}
    assert validate(trainjob_object(trainer=trainer, runtimePatches=patches), runtime_object()).allowed


def test_values_of_wrong_types_are_the_business_of_others() -> None:
    for spec in ({"runtimePatches": "x" * 300}, {"trainer": [1] * 300}, {"runtimeRef": {"name": 7}}, "x" * 300, None):
        assert list(limits.trainjob_limits({"spec": spec})) == []


def test_what_is_stored_beyond_a_limit_can_still_be_suspended_and_deleted() -> None:
    """It was stored by a definition without the limit."""
    many = [patch(pods(), f"acme.io/m{number}") for number in range(17)]
    stored = trainjob_object(runtimePatches=many)
    assert validate(trainjob_object(runtimePatches=many, suspend=True), runtime_object(), old=stored).allowed
    assert not validate(trainjob_object(runtimePatches=many, trainer={"numNodes": 2}), old=stored).allowed


def test_limits_of_runtimes_are_enforced_too() -> None:
    targets = [{"jobName": "node"}] * 17
    obj = runtime_object(policy={"torch": {"envInjection": {"targets": targets}}})
    message = "spec.mlPolicy.torch.envInjection.targets: Too many: 17: must have at most 16 items"
    assert validate_runtime(obj, None).message == message
