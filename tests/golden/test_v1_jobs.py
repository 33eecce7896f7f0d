"""The recorded cases of V1 jobs: Trainmaster does what the Training Operator did, save for `v1-differences.yaml`.

Each case is played on a simulated cluster of its own, with the definitions of the original, and again with ours.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from support.golden import assert_same, load_yaml
from support.jobs.differences import Difference, EventDifference, load_differences, load_event_differences
from support.jobs.player import play
from support.jobs.recorded import Case, Stages, load_case, registry_by, settled
from support.original_crds import SCHEMAS

HERE = Path(__file__).parent
PATHS = sorted((HERE / "v1").glob("*.yaml"))
DIFFERENCES = load_differences(HERE / "v1-differences.yaml")
EVENTS = load_event_differences(HERE / "v1-differences.yaml")
REASONS = load_yaml((HERE / "v1-differences.yaml").read_text())["reasons"]

pytestmark = pytest.mark.golden


@cache
def case_of(path: Path) -> Case:
    """Load a case, once for all tests."""
    return load_case(path)


@cache
def seen_of(path: Path, schemas: str) -> Stages:
    """Play a case, once for all tests."""
    return play(case_of(path), registry_by(schemas))


def events_of(stages: Stages) -> set[str]:
    """Return what was told, whenever it was."""
    return {event for sections in stages.values() for event in sections.get("events", ())}


def unlike(path: Path) -> tuple[set[str], set[str]]:
    """Return the events of a case that we do not tell, and those that we tell besides."""
    expected, seen = events_of(case_of(path).expected), events_of(seen_of(path, "original"))
    return expected - seen, seen - expected


def expected_of(case: Case, schemas: str) -> Stages:
    """What a case expects of us."""
    expected = settled(case.expected, case.varies)
    for difference in DIFFERENCES:
        if difference.definitions in (None, schemas):
            expected = difference.applied(case, expected)
    return expected


@pytest.mark.parametrize("schemas", SCHEMAS)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_case(path: Path, schemas: str) -> None:
    case = case_of(path)
    expected, seen = expected_of(case, schemas), settled(seen_of(path, schemas), case.varies)
    for stage in expected:
        wanted, found = (
            {key: value for key, value in each[stage].items() if key != "events"} for each in (expected, seen)
        )
        assert_same(found, wanted, f"stage {stage}")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_events_are_those_of_the_original(path: Path) -> None:
    case = case_of(path)
    missing, extra = unlike(path)
    assert [event for event in missing if not any(each.explains(case, event, missing=True) for each in EVENTS)] == []
    assert [event for event in extra if not any(each.explains(case, event, missing=False) for each in EVENTS)] == []


@pytest.mark.parametrize("difference", EVENTS, ids=str)
def test_a_declared_difference_of_events_is_one(difference: EventDifference) -> None:
    for path in PATHS:
        for missing, events in zip((True, False), unlike(path), strict=True):
            if any(difference.explains(case_of(path), event, missing=missing) for event in events):
                return
    pytest.fail(f"{difference} matches nothing")


@cache
def changing() -> set[int]:
    """The numbers of the differences that change what some case expects, with those before them applied."""
    found = set()
    for case in map(case_of, PATHS):
        before = settled(case.expected, case.varies)
        for each in DIFFERENCES:
            after = each.applied(case, before)
            if after is not before and after != before:
                found.add(each.number)
            before = after
    return found


@pytest.mark.parametrize("difference", DIFFERENCES, ids=str)
def test_a_declared_difference_is_one(difference: Difference) -> None:
    """It changes what some case expects, even where all others have been declared as well."""
    assert difference.number in changing(), f"{difference} matches nothing"


def test_every_difference_has_its_reason() -> None:
    assert REASONS.keys() == {each.by for each in DIFFERENCES} | {each.by for each in EVENTS}
