"""The controller in a cluster where things go wrong: every write, every frame of every watch, in every scenario.

`support.sim.judging` says what every run has to satisfy. A failing plan prints the command that replays it.

By default one plan in `EVERY` of each scenario with each fault, and less of long ones. `make matrix`, which sets
TRAINMASTER_MATRIX, runs all; with `third` one in three, which ones by the commit: the next commits have the others.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.sim.faults.plan import Plan
from support.sim.faults.writes import TIME_TRAVEL, WRITE_FAULTS
from support.sim.judging import families, plans, reference, run
from support.sim.scenarios import SCENARIOS

MATRIX = os.environ.get("TRAINMASTER_MATRIX", "")
EVERY = 1 if MATRIX else 8


@cache
def commit() -> str:
    """Return what is checked out; nothing where nobody knows."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def sample(scenario: str, fault: str) -> list[Plan]:
    """Return the plans that are run: the same ones each time, and at least one."""
    if MATRIX == "third":
        return part(plans(scenario, fault), 3, f"{commit()} {scenario} {fault}")
    every = EVERY * (SCENARIOS[scenario].thinned if EVERY > 1 else 1)
    return part(plans(scenario, fault), every, f"{scenario} {fault}")


def part(matrix: list[Plan], every: int, key: str) -> list[Plan]:
    """Return one plan in `every`, but at least one; the key says which."""
    first = zlib.crc32(key.encode()) % min(every, len(matrix)) if matrix else 0
    return matrix[first::every]


def sampled_families() -> list[tuple[str, str]]:
    """Return the pairs of scenarios and faults that are run: of long scenarios some, with each fault one at least."""
    chosen, struck = [], set()
    for number, (scenario, fault) in enumerate(families()):
        thinned = SCENARIOS[scenario].thinned
        if EVERY == 1 or thinned == 1 or fault not in struck or number % thinned == 0:
            chosen.append((scenario, fault))
            if thinned > 1:
                struck.add(fault)
    return chosen


@pytest.mark.parametrize(("scenario", "fault"), [pytest.param(*each, id="/".join(each)) for each in sampled_families()])
def test_faults_change_nothing_in_the_end(scenario: str, fault: str, record_property: Any) -> None:
    """The plans of one scenario with one fault; the first three that fail are told."""
    matrix = sample(scenario, fault)
    failed = [played.report() for plan in matrix if (played := run(plan)).violations]
    record_property("plans", len(matrix))
    assert not failed, f"{len(failed)} of {len(matrix)} plans failed\n\n" + "\n\n".join(failed[:3])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_undisturbed_run_ends_well(scenario: str) -> None:
    """The measure for all others: nothing violated, and every job that is left has ended."""
    played = reference(scenario)
    assert not played.violations, played.report()
    for key, obj in played.end_state.items():
        if key.startswith(("trainjobs ", "pytorchjobs ")):
            held = {each["type"] for each in obj["status"]["conditions"] if each["status"] == "True"}
            assert held & {"Complete", "Succeeded", "Failed"}, key


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_same_seed_gives_the_same_trace(scenario: str) -> None:
    """Byte by byte: otherwise no plan could be replayed."""
    for plan in (
        Plan(scenario=scenario, fault="none", seed=5),
        Plan(scenario=scenario, fault="crash-after", k=1),
        Plan(scenario=scenario, fault="chaos", seed=5),
    ):
        first, second = ("\n".join(map(str, run(plan).trace)) for _ in range(2))
        assert first.encode() == second.encode(), str(plan)


def test_another_seed_gives_another_trace() -> None:
    one, other = (run(Plan(scenario="several", fault="none", seed=seed)) for seed in (1, 2))
    assert one.trace != other.trace
    assert one.end_state == other.end_state


def test_every_fault_of_a_write_strikes_at_every_write() -> None:
    """A plan that strikes at nothing proves nothing."""
    base = reference("complete")
    assert base.steps == 4
    for fault in WRITE_FAULTS:
        variants = 3 if fault == TIME_TRAVEL else 1
        assert len(plans("complete", fault)) == variants * base.steps
    undisturbed = "\n".join(map(str, base.trace))
    for k in range(1, base.steps + 1):
        struck = run(Plan(scenario="complete", fault="reset-before", k=k))
        assert "StreamBroken" in "\n".join(map(str, struck.trace))
    assert "StreamBroken" not in undisturbed


def test_the_matrix_is_large() -> None:
    """At least five hundred plans, in a sample as well; the summary of the test run tells how many there were."""
    assert sum(len(sample(*family)) for family in sampled_families()) >= 500


def test_the_parts_of_different_commits_make_up_the_whole() -> None:
    matrix = plans("job-fail", "conflict")
    parts = [part(matrix, 3, f"commit {number}") for number in range(20)]
    assert all(len(each) <= len(matrix) // 3 + 1 for each in parts)
    assert {plan for each in parts for plan in each} == set(matrix)
    assert part(matrix, 3, "commit 0") == parts[0]
