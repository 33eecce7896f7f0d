"""Pods as a whole: whatever is sent, the answer is an object or a refusal."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.verdicts.cases import case, case_names, in_namespace

from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces, register_plugins
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import JOBS, PODS
from trainmaster.devcluster.apiserver.storage import Store
from trainmaster.runtime.jsontree import JsonObject, copy_tree

NUMBERS = (0, -1, 1, 601, 65536, 2**31 - 1, 2**40, 1.5)
TEXTS = ("", "..", "a/b", "x" * 300, "ü", "1Gi", "0.5", "Always", "c", "/a", "a=b", "Localhost", "None")
ANYTHING: tuple[Any, ...] = (None, "", 0, [], {}, [None], [{}], {"a": None}, [[]], True)


def _recorded() -> list[JsonObject]:
    """The pods and jobs of the recorded requests."""
    given = [
        obj for name in case_names() for obj in (*(case(name).get("given") or ()), case(name)["request"].get("create"))
    ]
    sound = [obj for obj in given if obj and obj.get("kind") in ("Pod", "Job") and isinstance(obj.get("spec"), dict)]
    return [in_namespace(obj, "default") for obj in sound]


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every member and item of a tree, as its holder and its key."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _spoilt(value: Any, chance: random.Random) -> Any:
    if chance.random() < 0.1:
        return copy_tree(chance.choice(ANYTHING))
    match value:
        case bool():
            return not value
        case int():
            return chance.choice(NUMBERS)
        case str():
            return chance.choice(TEXTS)
        case list():
            return chance.choice([[], [*value, *copy_tree(value)], value[:1]])
        case dict():
            return chance.choice([{}, dict(list(value.items())[1:])])
    return value


@pytest.mark.parametrize("seed", range(4))
async def test_an_odd_pod_is_refused_or_stored_and_never_an_error_of_the_server(seed: int) -> None:
    chance, seeds = random.Random(seed), _recorded()
    api = Api(Store(), builtin_registry())
    register_plugins(api)
    await create_system_namespaces(api)
    answers: set[int] = set()
    for number in range(250):
        obj = copy_tree(chance.choice(seeds))
        for holder, key in chance.choices(list(_places(obj["spec"])), k=chance.randint(1, 3)):
            holder[key] = _spoilt(holder[key], chance)
        obj["metadata"] = {"name": f"odd-{number}"}
        try:
            await api.create(PODS if obj["kind"] == "Pod" else JOBS, obj, namespace="default")
            answers.add(201)
        except StatusError as error:
            answers.add(error.code)
    assert {201, 400, 422} <= answers <= {201, 400, 403, 422}
