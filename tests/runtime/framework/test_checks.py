"""A plugin that does not fit the interface is refused at start."""

from __future__ import annotations

from typing import Any

import pytest
from support.plugins import Builder, Enforcer

from trainmaster.runtime.framework import Framework, PluginInvalid


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": ""}, "has no name"),
        ({"name": "X"}, "implements no extension point"),
        (
            {"name": "X", "api_version": "2.0", "build": Builder.build},
            "needs plugin API 2.0, this Trainmaster offers 1.0",
        ),
        ({"name": "X", "api_version": "new", "build": Builder.build}, "write it as major.minor"),
        ({"name": "X", "build": lambda self, info: ()}, r"build\(info\) must be build\(info, job, listers\)"),
    ],
)
def test_a_plugin_that_does_not_fit_is_refused_at_start(attributes: dict[str, Any], message: str) -> None:
    plugin = type("Odd", (), attributes)()
    with pytest.raises(PluginInvalid, match=message):
        Framework([plugin])


def test_an_async_plugin_is_refused() -> None:
    class Waiting:
        name = "Waiting"

        async def enforce_ml_policy(self, info: Any, job: Any) -> None:
            """Waits."""

    with pytest.raises(PluginInvalid, match="must be a plain function, not async"):
        Framework([Waiting()])


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"before": "jobset"}, r"before must be a list or tuple of plugin names, not 'jobset'"),
        ({"after": [1]}, r"after must be a list or tuple of plugin names"),
        ({"priority": "high"}, "priority must be a whole number, not 'high'"),
    ],
)
def test_a_place_that_means_nothing_is_refused(place: dict[str, Any], message: str) -> None:
    """A text would be taken for a list of letters, none of which is a plugin."""
    with pytest.raises(PluginInvalid, match=message):
        Framework([Enforcer("odd", **place)])
