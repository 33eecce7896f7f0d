"""What differs between processes is found."""

from pathlib import Path

import pytest
from support.unordered import Ordered, Unordered

from trainmaster.runtime.sdk import Info
from trainmaster.runtime.testing import Subject
from trainmaster.testing.processes import is_deterministic_across_processes

pytestmark = pytest.mark.nightly


def test_the_order_of_a_set_is_found(tmp_path: Path) -> None:
    (problem,) = is_deterministic_across_processes(Subject(Unordered), tmp_path)
    assert "another process makes something else of a TrainJob" in problem.what
    assert "annotations.zones is 'zone-" in problem.what
    assert "sort what comes from a set" in problem.do


def test_what_is_sorted_passes(tmp_path: Path) -> None:
    assert not list(is_deterministic_across_processes(Subject(Ordered), tmp_path))


def test_a_plugin_is_found_by_its_entry_point(tmp_path: Path) -> None:
    assert not list(is_deterministic_across_processes(Subject("torch", runtime={"mlPolicy": {"torch": {}}}), tmp_path))


def test_a_plugin_that_no_process_can_import_is_left_out(tmp_path: Path) -> None:
    class Local:
        name = "local"

        def pre_build(self, info: Info) -> None: ...

    assert not list(is_deterministic_across_processes(Subject(Local), tmp_path))
    assert not list(is_deterministic_across_processes(Subject(Ordered, options={"f": lambda: None}), tmp_path))
