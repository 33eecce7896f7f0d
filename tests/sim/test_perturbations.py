"""The controller in a cluster where things go wrong: a sample of all plans, and those that once found a defect."""

import zlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.sim.faults.plan import Plan
from support.sim.faults.writes import TIME_TRAVEL, WRITE_FAULTS
from support.sim.judging import families, plans, reference, run, run_all
from support.sim.scenarios import SCENARIOS

EVERY = 48


def sample(scenario: str) -> list[Plan]:
    """Return the plans that are run: the same ones each time."""
    every_plan = [plan for name, fault in families() if name == scenario for plan in plans(scenario, fault)]
    return every_plan[zlib.crc32(scenario.encode()) % EVERY :: EVERY]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_faults_change_nothing_in_the_end(scenario: str, record_property: Any) -> None:
    record_property("plans", run_all(sample(scenario)))


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
    plan = Plan(scenario=scenario, fault="chaos", seed=5)
    first, second = ("\n".join(map(str, run(plan).trace)) for _ in range(2))
    assert first.encode() == second.encode()


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


def test_the_sample_has_every_scenario_and_nearly_every_fault() -> None:
    sampled = [sample(scenario) for scenario in SCENARIOS]
    assert all(sampled)
    struck = {plan.fault for matrix in sampled for plan in matrix}
    assert len(struck) > 0.9 * len({fault for _, fault in families()})


REGRESSIONS = yaml.safe_load((Path(__file__).parent / "regressions.yaml").read_text())


def test_the_plan_that_was_asked_for(request: pytest.FixtureRequest) -> None:
    """`pytest tests/sim/test_perturbations.py -k asked_for --plan "..."`: what a failing plan prints."""
    text = request.config.getoption("--plan", None)
    if text is None:
        pytest.skip("no plan was asked for")
    played = run(Plan.read(text))
    assert not played.violations, "\n".join([played.report(), "trace:", *map(str, played.trace)])


@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda regression: regression["plan"])
def test_no_defect_comes_back(regression: dict[str, str]) -> None:
    """Each of these plans once ended wrongly; its text stays the same, so that it meets the same moment."""
    played = run(Plan.read(regression["plan"]))
    assert not played.violations, played.report()


def test_the_text_of_a_plan_gives_the_plan() -> None:
    plan = Plan(scenario="several", fault="time-travel", k=3, n=6, on="jobsets", seed=7)
    assert Plan.read(str(plan)) == plan
    assert str(plan) == "scenario=several fault=time-travel k=3 n=6 on=jobsets seed=7"
