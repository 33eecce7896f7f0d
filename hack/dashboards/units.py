"""Values as Grafana writes them, by the unit of their panel."""

from __future__ import annotations

import math
from typing import Final

from trainmaster.metrics.dashboards.model import Unit

_TIMES: Final = ((1e-6, "µs", 1e-6), (1e-3, "µs", 1e-6), (1.0, "ms", 1e-3), (60.0, "s", 1.0), (3600.0, "min", 60.0),
                 (86400.0, "hours", 3600.0), (math.inf, "days", 86400.0))  # fmt: skip
"""Below which value, what it is called, and what one of it is."""

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_DECIMAL: Final = ("", "K", "M", "G")
_SUFFIXES: Final = {"short": "", "ops": " ops/s", "reqps": " req/s", "Bps": "/s", "bytes": ""}


def written(value: float, unit: Unit) -> str:
    """Return a value as text."""
    if unit == "percentunit":
        return f"{_digits(value * 100)}%"
    if unit == "s":
        if value == 0:
            return "0 s"
        name, one = next((name, one) for below, name, one in _TIMES if abs(value) < below)
        return f"{_digits(value / one)} {name}"
    base, names = (1024, _BINARY) if unit in {"bytes", "Bps"} else (1000, _DECIMAL)
    power = 0
    while abs(value) >= base and power < len(names) - 1:
        value, power = value / base, power + 1
    gap = " " if names is _BINARY and names[power] else ""
    return f"{_digits(value)}{gap}{names[power]}{_SUFFIXES[unit]}"


def _digits(value: float) -> str:
    """Return three digits, without zeros at the end."""
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(decimals, 4)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
