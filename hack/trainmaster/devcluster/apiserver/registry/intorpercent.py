"""Numbers that are written as such or as a share: `1`, `"25%"`. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError

_PERCENT = re.compile(r"([0-9]+)%")


def int_or_percent(path: str, value: int | str) -> Iterator[FieldError]:
    """Check a number that is zero or more, or a share."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            detail = (
                "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
                "regex used for validation is '[0-9]+%')"
            )
            yield FieldError(path, "Invalid", value, detail)
    elif value < 0:
        yield FieldError(path, "Invalid", value, "must be greater than or equal to 0")


def scaled_value(value: int | str, total: int, *, round_up: bool) -> int:
    """Return the number that stands there, or that share of a total. A text that is no share counts as 0."""
    if not isinstance(value, str):
        return int(value)
    share = _PERCENT.fullmatch(value)
    if share is None:
        return 0
    scaled = int(share[1]) * total / 100
    return math.ceil(scaled) if round_up else math.floor(scaled)
