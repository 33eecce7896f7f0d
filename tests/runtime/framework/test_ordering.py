"""The order of plugins within a phase."""

from __future__ import annotations

from typing import Any

import pytest
from support.plugins import Enforcer

from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.framework.ordering import order_plugins


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
