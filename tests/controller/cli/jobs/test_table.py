"""Durations in the table of jobs."""

from __future__ import annotations

import pytest

from trainmaster.controller.cli.jobs.table import human_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (10 * 60 + 5, "10m"),
        (3600, "60m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 20 * 60, "3h20m"),
        (9 * 3600 + 20 * 60, "9h"),
        (86400 * 2 + 3600, "2d1h"),
        (86400 * 40, "40d"),
    ],
)
def test_durations_are_written_as_kubectl_writes_them(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text
