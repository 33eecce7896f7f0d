"""Values are written as Grafana writes them."""

from __future__ import annotations

import pytest

from dashboards.units import written
from trainmaster.metrics.dashboards.model import Unit


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.000012, "s", "12 µs"),
        (0.0234, "s", "23.4 ms"),
        (0, "s", "0 s"),
        (90, "s", "1.5 min"),
        (8 * 86400, "s", "8 days"),
        (1_234_567, "short", "1.23M"),
        (100, "short", "100"),
        (0.1234, "percentunit", "12.3%"),
        (123_456_789, "bytes", "118 MiB"),
        (1024, "Bps", "1 KiB/s"),
        (0.5, "ops", "0.5 ops/s"),
        (-2, "short", "-2"),
    ],
)
def test_a_value_has_three_digits_and_its_unit(value: float, unit: Unit, text: str) -> None:
    assert written(value, unit) == text
