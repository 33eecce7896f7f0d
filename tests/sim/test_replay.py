"""One plan by its text, and those that once found a defect."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.sim.faults.plan import Plan
from support.sim.judging import run

REGRESSIONS = yaml.safe_load((Path(__file__).parent / "regressions.yaml").read_text())


def test_the_plan_that_was_asked_for(request: pytest.FixtureRequest) -> None:
    """`pytest tests/sim/test_replay.py --plan "..."`: what a failing plan prints."""
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
