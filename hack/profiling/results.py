"""Profiles in a file: what docs/benchmarks.md shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from profiling.profile import PhaseProfile
from trainmaster.runtime.jsontree import JsonObject


@dataclass(frozen=True, slots=True)
class Results:
    """Profiles of one run of `make profile`."""

    machine: JsonObject
    jobs: int
    profiles: Mapping[str, Mapping[str, PhaseProfile]]
    """By commit and phase."""


def read(path: Path) -> Results:
    """Read profiles.

    Raises:
        ValueError: The file has something else.
    """
    document: Any = orjson.loads(path.read_bytes())
    if not isinstance(document, dict) or not {"machine", "jobs", "profiles"} <= document.keys():
        raise ValueError("it was not written by `make profile`")
    profiles = {
        commit: {phase: PhaseProfile.from_json(each) for phase, each in phases.items()}
        for commit, phases in document["profiles"].items()
    }
    return Results(document["machine"], document["jobs"], profiles)


def write(path: Path, results: Results) -> None:
    """Write profiles."""
    profiles = {
        commit: {phase: each.to_json() for phase, each in phases.items()} for commit, phases in results.profiles.items()
    }
    document = {"machine": results.machine, "jobs": results.jobs, "profiles": profiles}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
