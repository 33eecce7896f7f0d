"""The conformance suite finds what it is there for: a plugin that is broken on purpose fails each check."""

from __future__ import annotations

import pytest
from support.suites import GOOD, Good

from trainmaster.runtime.testing import CHECKS, PluginConformance, Subject, nonconformities


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
