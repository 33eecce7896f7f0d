"""Every rule of every definition that training needs, with objects that keep it and objects that break it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.definitions import definitions

from trainmaster.devcluster.apiserver.schema.cel import Rules

SCHEMAS: dict[str, Any] = {
    definition["spec"]["names"]["plural"]: definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for definition in definitions()
}
IMMUTABLE = "self == oldSelf"

_TWO_POLICIES = (
    "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux), has(self.custom)]"
    ".filter(x, x).size() <= 1"
)
_TWO_SCHEDULERS = "!has(self.custom) || !(has(self.coscheduling) || has(self.volcano))"
_ORDER_OR_DEPENDENCIES = (
    "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder' && "
    "self.replicatedJobs.exists(x, has(x.dependsOn)))"
)
_NO_NAMESPACE = "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)"
_IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
_ANY_ORDER = {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}}
_DEPENDENT = {"replicatedJobs": [{"name": "a"}, {"name": "b", "dependsOn": [{"name": "a", "status": "Ready"}]}]}

_HAS_CLAIM = "(has(self.resourceClaimName) && self.resourceClaimName != '')"
_HAS_TEMPLATE = "(has(self.resourceClaimTemplateName) && self.resourceClaimTemplateName != '')"
_CLAIM = {"name": "a", "resourceClaimName": "c"}
_TEMPLATE = {"name": "b", "resourceClaimTemplateName": "t"}

_GRID_IS_CATEGORICAL = "!has(self.searchAlgorithm.grid) || self.parameters.all(p, has(p.searchSpace.categorical))"
_ONE_SPACE = "[has(self.uniform),has(self.logUniform),has(self.categorical)].filter(x,x==true).size() == 1"
_UNIFORM = {"name": "a", "searchSpace": {"uniform": {"min": "0", "max": "1"}}}
_CATEGORICAL = {"name": "b", "searchSpace": {"categorical": {"choices": ["a"]}}}

VECTORS: dict[str, tuple[list[Any], list[Any]]] = {
    "self.parallelTrials <= self.numTrials": (
        [{"parallelTrials": 1, "numTrials": 1}, {"parallelTrials": 1, "numTrials": 9}],
        [{"parallelTrials": 2, "numTrials": 1}],
    ),
    _GRID_IS_CATEGORICAL: (
        [
            {"searchAlgorithm": {"random": {}}, "parameters": [_UNIFORM]},
            {"searchAlgorithm": {"grid": {}}, "parameters": [_CATEGORICAL]},
        ],
        [{"searchAlgorithm": {"grid": {}}, "parameters": [_CATEGORICAL, _UNIFORM]}],
    ),
    "[has(self.random),has(self.grid)].filter(x,x==true).size() == 1": (
        [{"random": {"seed": 1}}, {"grid": {}}],
        [{}, {"random": {}, "grid": {}}],
    ),
    _ONE_SPACE: (
        [_UNIFORM["searchSpace"], _CATEGORICAL["searchSpace"]],
        [{}, {"uniform": {"min": "0", "max": "1"}, "categorical": {"choices": ["a"]}}],
    ),
    "double(self.min) < double(self.max)": (
        [{"min": "1e-3", "max": "0.5"}, {"min": "-2", "max": "-1"}],
        [{"min": "1", "max": "1"}, {"min": "10", "max": "9"}],
    ),
    "double(self.min) > 0.0": ([{"min": "1e-9", "max": "1"}], [{"min": "0", "max": "1"}, {"min": "-1", "max": "1"}]),
    "!has(self.name) && !has(self.namespace)": (
        [{}, {"labels": {"a": "b"}}],
        [{"name": "a"}, {"namespace": "a"}],
    ),
    "self >= 1": ([1, 7], [0, -1]),
    f"{_HAS_CLAIM} || {_HAS_TEMPLATE}": (
        [_CLAIM, _TEMPLATE, _CLAIM | {"resourceClaimTemplateName": ""}],
        [{"name": "a"}, {"name": "a", "resourceClaimName": "", "resourceClaimTemplateName": ""}],
    ),
    f"!({_HAS_CLAIM} && {_HAS_TEMPLATE})": (
        [_CLAIM, _TEMPLATE, _TEMPLATE | {"resourceClaimName": ""}],
        [_CLAIM | {"resourceClaimTemplateName": "t"}],
    ),
    "type(self) == int ? self >= 1 : self in ['auto', 'cpu', 'gpu']": (
        [1, 7, "auto", "cpu", "gpu"],
        [0, -1, "", "1", "all"],
    ),
    "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')": (
        ["", "hf://a/b", "s3+x.y-z://é"],
        ["hf", "://a", "hf://", "1x://a", "hf:/a", " hf://a", "hf://\n"],
    ),
    "self in ['trainer.kubeflow.org/trainjob-controller', 'kueue.x-k8s.io/multikueue']": (
        ["trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue"],
        ["", "trainer.kubeflow.org/trainjob-controller "],
    ),
    "has(self.lastUpdatedTime)": (
        [{"lastUpdatedTime": "2024-01-01T00:00:00Z"}],
        [{}, {"progressPercentage": 1}],
    ),
    "!self.exists(c, c == 'node')": ([[], ["nod"]], [["node"], ["x", "node"]]),
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')": (
        [{"metadata": {"name": name}} for name in ("a", "a-1", "abc")],
        [{"metadata": {"name": name}} for name in ("1a", "Demo", "a.b", "a-", "-a", "a\n")],
    ),
    "size(self.metadata.name) <= 63": (
        [{"metadata": {"name": "a" * 63}}],
        [{"metadata": {"name": "a" * 64}}],
    ),
    _TWO_POLICIES: (
        [{}, {"numNodes": 1}, {"torch": {}}, {"flux": {"numProcPerNode": 1}}, {"custom": {"name": "ray"}}],
        [{"torch": {}, "mpi": {}}, {"jax": {}, "xgboost": {}, "flux": {}}, {"torch": {}, "custom": {"name": "ray"}}],
    ),
    _TWO_SCHEDULERS: (
        [{}, {"custom": {"name": "kai"}}, {"coscheduling": {}, "volcano": {}}],
        [{"custom": {"name": "kai"}, "volcano": {}}, {"custom": {"name": "kai"}, "coscheduling": {}}],
    ),
    _ORDER_OR_DEPENDENCIES: (
        [{}, _IN_ORDER | {"replicatedJobs": [{"name": "a"}]}, _DEPENDENT, _ANY_ORDER | _DEPENDENT],
        [_IN_ORDER | _DEPENDENT],
    ),
    _NO_NAMESPACE: (
        [{"templates": [{"metadata": metadata}]} for metadata in ({}, {"name": "a"}, {"namespace": ""})],
        [{"templates": [{"metadata": {}}, {"metadata": {"namespace": "a"}}]}],
    ),
}


def _ruled(schema: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Give every rule with the path and the schema of the values that it is about."""
    if not isinstance(schema, dict):
        return
    for entry in schema.get("x-kubernetes-validations", ()):
        yield path, schema, entry
    for name, child in schema.get("properties", {}).items():
        yield from _ruled(child, f"{path}.{name}")
    yield from _ruled(schema.get("items"), f"{path}[]")
    yield from _ruled(schema.get("additionalProperties"), f"{path}{{}}")


RULES = [(name, *found) for name, root in SCHEMAS.items() for found in _ruled(root)]


def _placed(path: str, value: Any) -> dict[str, Any]:
    """Return an object that holds the value at the path; elements of lists get the keys that lists go by."""
    for step in reversed(re.findall(r"\.\w+|\[\]", path)):
        if step != "[]":
            value = {step[1:]: value}
        elif isinstance(value, dict):
            value = [{"manager": "m", "name": "n", "jobName": "j"} | value]
        else:
            value = [value]
    assert isinstance(value, dict)
    return {"metadata": {"name": "a"}} | value


def _values(schema: dict[str, Any]) -> tuple[Any, Any]:
    """Return two values of a schema."""
    match schema["type"]:
        case "integer":
            return 1, 2
        case "string":
            return "kueue.x-k8s.io/multikueue", "trainer.kubeflow.org/trainjob-controller"
        case "array":
            return [{"name": "a"}], [{"name": "b"}]
    return {"x": {"y": [1]}}, {"x": {"y": [2]}}


@pytest.fixture(scope="module")
def compiled() -> dict[str, Rules]:
    return {}


def _rules(compiled: dict[str, Rules], name: str) -> Rules:
    if name not in compiled:
        compiled[name] = Rules(SCHEMAS[name])
    assert compiled[name].problems == []
    return compiled[name]


def test_there_are_rules_in_every_definition() -> None:
    assert set(SCHEMAS) == {
        "clustertrainingruntimes",
        "jobsets",
        "optimizationjobs",
        "trainingruntimes",
        "trainjobs",
    }
    assert {name for name, *_ in RULES} == set(SCHEMAS)
    assert {entry["rule"] for *_, entry in RULES} == {*VECTORS, IMMUTABLE}


@pytest.mark.parametrize("found", RULES, ids=lambda found: f"{found[0]}{found[1]}-{found[3]['rule'][:20]}")
def test_objects_that_keep_and_break_a_rule(compiled: Any, found: tuple[str, str, Any, Any]) -> None:
    name, path, schema, entry = found
    rules = _rules(compiled, name)

    def broken(new: Any, old: Any = None) -> bool:
        return entry["message"] in {error.detail for error in rules.check(new, old).errors}

    if entry["rule"] == IMMUTABLE:
        one, other = _values(schema)
        if path.endswith("].manager"):
            # This is the key of its list: another manager is another element.
            assert not broken(_placed(path, one), _placed(path, other))
            return
        assert not broken(_placed(path, one))
        assert not broken(_placed(path, one), {"metadata": {"name": "a"}})
        assert not broken(_placed(path, one), _placed(path, one))
        assert broken(_placed(path, one), _placed(path, other))
        return
    good, bad = VECTORS[entry["rule"]]
    for value in good:
        assert not broken(_placed(path, value)), value
    for value in bad:
        assert broken(_placed(path, value)), value
