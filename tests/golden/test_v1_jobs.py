"""The recorded cases of V1 jobs: Trainmaster does what the Training Operator did, save for `v1-differences.yaml`.

Each case is played on a simulated cluster of its own, with the definitions of the original, and again with ours.
"""

from functools import cache

import pytest
from support.golden import GOLDEN, assert_same, load_yaml, recorded_cases
from support.jobs.differences import Difference, EventDifference, load_differences, load_event_differences
from support.jobs.player import play
from support.jobs.recorded import Case, Stages, load_case, registry_by, settled
from support.original_crds import SCHEMAS

CASES = recorded_cases("v1")
DIFFERENCES = load_differences(GOLDEN / "v1-differences.yaml")
EVENTS = load_event_differences(GOLDEN / "v1-differences.yaml")
REASONS = load_yaml((GOLDEN / "v1-differences.yaml").read_text())["reasons"]

pytestmark = pytest.mark.golden


@cache
def case_of(name: str) -> Case:
    """Load a case, once for all tests."""
    return load_case(name)


@cache
def seen_of(name: str, schemas: str) -> Stages:
    """Play a case, once for all tests."""
    return play(case_of(name), registry_by(schemas))


def events_of(stages: Stages) -> set[str]:
    """Return what was told, whenever it was."""
    return {event for sections in stages.values() for event in sections.get("events", ())}


def unlike(name: str) -> tuple[set[str], set[str]]:
    """Return the events of a case that we do not tell, and those that we tell besides."""
    expected, seen = events_of(case_of(name).expected), events_of(seen_of(name, "original"))
    return expected - seen, seen - expected


def expected_of(case: Case, schemas: str) -> Stages:
    """What a case expects of us."""
    expected = settled(case.expected, case.varies)
    for difference in DIFFERENCES:
        if difference.definitions in (None, schemas):
            expected = difference.applied(case, expected)
    return expected


@pytest.mark.parametrize("schemas", SCHEMAS)
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, schemas: str) -> None:
    case = case_of(name)
    expected, seen = expected_of(case, schemas), settled(seen_of(name, schemas), case.varies)
    for stage in expected:
        wanted, found = (
            {key: value for key, value in each[stage].items() if key != "events"} for each in (expected, seen)
        )
        assert_same(found, wanted, f"stage {stage}")


@pytest.mark.parametrize("name", CASES)
def test_events_are_those_of_the_original(name: str) -> None:
    case = case_of(name)
    missing, extra = unlike(name)
    assert [event for event in missing if not any(each.explains(case, event, missing=True) for each in EVENTS)] == []
    assert [event for event in extra if not any(each.explains(case, event, missing=False) for each in EVENTS)] == []


@pytest.mark.parametrize("difference", EVENTS, ids=str)
def test_a_declared_difference_of_events_is_one(difference: EventDifference) -> None:
    for name in CASES:
        for missing, events in zip((True, False), unlike(name), strict=True):
            if any(difference.explains(case_of(name), event, missing=missing) for event in events):
                return
    pytest.fail(f"{difference} matches nothing")


@cache
def changing() -> set[int]:
    """The numbers of the differences that change what some case expects, with those before them applied."""
    found = set()
    for case in map(case_of, CASES):
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
