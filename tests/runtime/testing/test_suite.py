"""The conformance suite, and what it and other tests of plugins are given."""

from __future__ import annotations

from typing import Any

import pytest
from support.suites import GOOD, Good, passes

from trainmaster.runtime.framework import Framework
from trainmaster.runtime.sdk import NoSuchIndex
from trainmaster.runtime.testing import CHECKS, KnownObjects, PluginConformance, Subject, nonconformities


def test_a_plugin_that_conforms_passes_every_check() -> None:
    assert not nonconformities(Subject(Good, **GOOD))


def test_each_check_has_a_test_of_its_own() -> None:
    tests = [name for name in vars(PluginConformance) if name.startswith("test_")]
    elsewhere = {"uses_its_rights", "survives_definitions", "is_deterministic_across_processes"}
    assert {name.removeprefix("test_it_").removeprefix("test_") for name in tests} == {*CHECKS, *elsewhere}
    assert all(getattr(PluginConformance, name).__doc__ for name in tests)


def test_a_suite_without_a_plugin_says_so() -> None:
    suite = type("TestNothing", (PluginConformance,), {})
    with pytest.raises(AssertionError, match=r"TestNothing does not say which plugin it tests: give it `plugin = "):
        suite().test_it_is_deterministic()


@pytest.mark.parametrize("given", [lambda: Good(Good.Options()), Good(Good.Options())], ids=["function", "instance"])
def test_a_plugin_may_be_given_made_or_by_a_function(given: Any) -> None:
    passes("test_it_is_deterministic", given, runtime=GOOD["runtime"])


def test_a_plugin_may_be_given_by_its_entry_point() -> None:
    passes("test_it_is_deterministic", "jax", runtime={"mlPolicy": {"jax": {}}})


def test_the_subject_runs_among_the_built_in_plugins() -> None:
    framework = Subject(Good, **GOOD).framework()
    assert isinstance(framework, Framework)
    assert {"good", "torch", "jobset"} <= set(framework.names())


def test_known_objects_say_how_they_are_made() -> None:
    with pytest.raises(TypeError, match=r"KnownObjects\(a, b\), not a list"):
        KnownObjects([{}])  # type: ignore[arg-type]  # the fault
    with pytest.raises(NoSuchIndex) as raised:
        KnownObjects().by_index("v1", "ConfigMap", "acme-team", "robotics")
    assert raised.value.__notes__ == [
        "In a test: KnownObjects(..., watches=plugin.watch_extension()) has those of a plugin."
    ]
