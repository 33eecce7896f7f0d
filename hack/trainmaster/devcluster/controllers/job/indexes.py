"""Sets of completion indexes and their compressed text form, for instance `0,2-4`."""

from __future__ import annotations

from collections.abc import Iterable


def parse_ranges(text: str | None) -> list[range]:
    """Read the compressed form without expanding it; raises ValueError on anything else."""
    ranges = []
    for part in (text or "").split(","):
        if part:
            first, dash, last = part.partition("-")
            ranges.append(range(int(first), int(last if dash else first) + 1))
    return ranges


def parse_indexes(text: str | None) -> set[int]:
    """Read the compressed form; for texts that this package wrote, whose size is bounded by the number of pods."""
    return {index for each in parse_ranges(text) for index in each}


def format_indexes(indexes: Iterable[int]) -> str:
    """Write indexes in ascending order, runs of three or more as `a-c`, the way Kubernetes does."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(_format_run(first, last) for first, last in runs)


def _format_run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
