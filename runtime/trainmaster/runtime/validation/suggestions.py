"""Suggesting what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

_LISTED: Final = 10


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Complete a message about an unknown name, in parentheses: with the nearest known one, else with all of them."""
    names: Sequence[str] = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f'(did you mean "{near[0]}"?)'
    if not names:
        return "(there are none)"
    listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    return f"(there are: {listed})"
