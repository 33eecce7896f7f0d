"""What a suite is given: a plugin, in one of several forms, among those that are built in."""

from __future__ import annotations

from typing import Any

import pytest
from support.suites import GOOD, Good, passes

from trainmaster.runtime.framework import Framework
from trainmaster.runtime.testing import Subject


@pytest.mark.parametrize("given", [lambda: Good(Good.Options()), Good(Good.Options())], ids=["function", "instance"])
def test_a_plugin_may_be_given_made_or_by_a_function(given: Any) -> None:
    passes("test_it_is_deterministic", given, runtime=GOOD["runtime"])


def test_a_plugin_may_be_given_by_its_entry_point() -> None:
    passes("test_it_is_deterministic", "jax", runtime={"mlPolicy": {"jax": {}}})


def test_the_subject_runs_among_the_built_in_plugins() -> None:
    framework = Subject(Good, **GOOD).framework()
    assert isinstance(framework, Framework)
    assert {"good", "torch", "jobset"} <= set(framework.names())
