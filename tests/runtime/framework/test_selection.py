"""Which plugins serve a TrainJob by its runtime alone, and in which order plugins run."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from support.objects import runtime, trainjob
from support.plugins import Enforcer

from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.framework.descriptor import describe
from trainmaster.runtime.framework.ordering import order_plugins
from trainmaster.runtime.framework.selection import Selection
from trainmaster.runtime.resolver import new_info


def plugin(name: str, **attributes: Any) -> Any:
    return type(name, (), {"name": name, "build": lambda self: [], **attributes})()


PLUGINS = [
    plugin("all"),
    plugin("torch", policies=("torch",)),
    plugin("frameworks", policies=("torch", "jax")),
    plugin("ray", policies=("ray",)),
    plugin("ring", ml_policy_config=BaseModel),
    plugin("deciding", applies_to=lambda self: True, policies=("torch",)),
]
SELECTION = Selection({each.name: describe(each, origin=each.name) for each in PLUGINS})


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        ({}, {"all"}),
        ({"torch": {}}, {"all", "torch", "frameworks"}),
        ({"jax": {}}, {"all", "frameworks"}),
        ({"ray": {}}, {"all", "ray"}),  # of a newer API
        ({"custom": {"name": "ring"}}, {"all", "ring"}),
        ({"custom": {"name": "torch"}}, {"all"}),
        ({"custom": {"name": "deciding"}}, {"all"}),
    ],
)
def test_plugins_are_chosen_by_the_policies_of_a_runtime(policy: Any, chosen: set[str]) -> None:
    assert SELECTION.chosen(new_info(trainjob(), runtime(policy=policy))) == chosen


def test_who_decides_for_each_trainjob_is_not_chosen_by_what_else_it_says() -> None:
    assert SELECTION.deciding == {"deciding"}
    assert SELECTION.serving_all == {"all"}


def names(plugins: list[Any]) -> list[str]:
    return [plugin.name for plugin in order_plugins(plugins)]


def test_order_is_by_priority_and_then_by_name() -> None:
    assert names([Enforcer("c"), Enforcer("a"), Enforcer("z", priority=1), Enforcer("b", priority=-1)]) == [
        "z",
        "a",
        "c",
        "b",
    ]


def test_before_and_after_win_over_priority() -> None:
    first = Enforcer("first", priority=-5, before=("second", "unknown"))
    assert names([Enforcer("second", priority=9), first, Enforcer("third", after=("second",))]) == [
        "first",
        "second",
        "third",
    ]


def test_a_contradiction_in_the_order_is_refused() -> None:
    with pytest.raises(PluginInvalid, match="contradicts itself: "):
        order_plugins([Enforcer("a", before=("b",)), Enforcer("b", before=("a",))])
