"""Every plan of every scenario with every fault: thirteen thousand clusters, by `make matrix`."""

from typing import Any

import pytest
from support.sim.judging import families, plans, run_all

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("scenario", "fault"), [pytest.param(*each, id="/".join(each)) for each in families()])
def test_faults_change_nothing_in_the_end(scenario: str, fault: str, record_property: Any) -> None:
    record_property("plans", run_all(plans(scenario, fault)))
