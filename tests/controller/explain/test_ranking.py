"""The order of findings: what explains others comes first, then what is surer, then what was earlier."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st
from support.job_views import moment

from trainmaster.controller.explain.cause import TEXTS, Cause
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, ObjectReference
from trainmaster.controller.explain.ranking import EXPLAINS, MOST_EVIDENCE, explains, ranked

POD = ObjectReference("Pod", "team", "demo-node-0-0")


def finding(
    cause: Cause, certainty: Certainty = Certainty.CERTAIN, since: float | None = 5, text: str = "so it is"
) -> Finding:
    return Finding(cause, certainty, (Evidence(POD, text),), None if since is None else moment(since))


FINDINGS = st.builds(
    finding,
    st.sampled_from(Cause),
    st.sampled_from(Certainty),
    st.one_of(st.none(), st.integers(min_value=0, max_value=100)),
    st.sampled_from(["one", "other"]),
)


def causes(*found: Finding) -> list[Cause]:
    return [each.cause for each in ranked(found)]


def test_a_cause_comes_before_its_symptoms_however_sure_those_are() -> None:
    possible = finding(Cause.NAME_RESOLUTION_FAILED, Certainty.POSSIBLE, since=20)
    certain = finding(Cause.CONTAINER_FAILED, Certainty.CERTAIN, since=20)
    for order in permutations([certain, possible, finding(Cause.BACKOFF_LIMIT_EXCEEDED, since=60)]):
        assert causes(*order) == [Cause.NAME_RESOLUTION_FAILED, Cause.CONTAINER_FAILED, Cause.BACKOFF_LIMIT_EXCEEDED]


def test_a_limit_of_restarts_comes_after_whatever_used_it_up() -> None:
    """Also if that is a mere guess, and by the clock of its node came later."""
    for cause in (
        *(Cause.CONTAINER_FAILED, Cause.OUT_OF_MEMORY, Cause.INIT_CONTAINER_FAILED, Cause.EVICTED, Cause.PREEMPTED),
        *(Cause.NODE_LOST, Cause.NAME_RESOLUTION_FAILED, Cause.RENDEZVOUS_TIMEOUT, Cause.WORLD_SIZE_MISMATCH),
        Cause.DEADLINE_EXCEEDED,
    ):
        failed = finding(cause, Certainty.POSSIBLE, since=90)
        assert causes(finding(Cause.BACKOFF_LIMIT_EXCEEDED, since=30), failed) == [cause, Cause.BACKOFF_LIMIT_EXCEEDED]


def test_what_happened_later_explains_nothing_and_of_two_the_earlier_one_explains_the_other() -> None:
    # What happened later explains nothing.
    assert causes(finding(Cause.OUT_OF_MEMORY, since=90), finding(Cause.CONTAINER_FAILED, since=20)) == [
        Cause.CONTAINER_FAILED,
        Cause.OUT_OF_MEMORY,
    ]
    # Of two that may explain each other the earlier one does. A rank that crashes leaves others in a rendezvous that
    # fails; and one that fails makes its rank crash.
    crashed, left_alone = finding(Cause.CONTAINER_FAILED, since=20), finding(Cause.RENDEZVOUS_TIMEOUT, since=320)
    assert causes(left_alone, crashed) == [Cause.CONTAINER_FAILED, Cause.RENDEZVOUS_TIMEOUT]
    alone, crashes = finding(Cause.RENDEZVOUS_TIMEOUT, since=20), finding(Cause.CONTAINER_FAILED, since=320)
    assert causes(crashes, alone) == [Cause.RENDEZVOUS_TIMEOUT, Cause.CONTAINER_FAILED]


def test_the_surer_one_comes_first_and_then_the_earlier_one() -> None:
    assert causes(finding(Cause.EVICTED, Certainty.LIKELY), finding(Cause.IMAGE_PULL_FAILED)) == [
        Cause.IMAGE_PULL_FAILED,
        Cause.EVICTED,
    ]
    assert causes(finding(Cause.VOLUME_PENDING, since=9), finding(Cause.IMAGE_PULL_FAILED, since=3)) == [
        Cause.IMAGE_PULL_FAILED,
        Cause.VOLUME_PENDING,
    ]


def test_what_several_finders_say_of_one_cause_is_put_together_within_bounds() -> None:
    # What several finders say of one cause is put together.
    quota = finding(Cause.QUOTA_EXCEEDED, Certainty.LIKELY, 9, "the quota says so")
    queue = finding(Cause.QUOTA_EXCEEDED, Certainty.CERTAIN, 20, "the queue says so")
    (merged,) = ranked([quota, queue])
    assert [each.text for each in merged.evidence] == ["the queue says so", "the quota says so"]
    assert (merged.certainty, merged.since) == (Certainty.CERTAIN, moment(9))
    # Evidence is bounded.
    many = [finding(Cause.UNSCHEDULABLE, text=f"pod {number}") for number in range(3 * MOST_EVIDENCE)]
    (merged,) = ranked(many)
    assert len(merged.evidence) == MOST_EVIDENCE


@given(st.lists(FINDINGS, max_size=12))
def test_every_cause_is_listed_once_and_the_first_is_explained_by_no_other(found: list[Finding]) -> None:
    order = ranked(found)
    assert sorted(each.cause for each in order) == sorted({each.cause for each in found})
    for number, each in enumerate(order):
        later = [other for other in order[number + 1 :] if explains(other, each)]
        # What is listed before something that explains it is in a circle with that.
        assert all(_reaches(each, other, order[number:]) for other in later)


def _reaches(start: Finding, end: Finding, among: Sequence[Finding]) -> bool:
    seen, front = {start.cause}, [start]
    while front:
        one = front.pop()
        for other in among:
            if other.cause not in seen and explains(one, other):
                seen.add(other.cause)
                front.append(other)
    return end.cause in seen


@given(st.lists(FINDINGS, max_size=8), st.randoms())
def test_the_order_in_which_finders_are_called_means_nothing(found: list[Finding], random: object) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # Hypothesis gives a Random
    assert [each.cause for each in ranked(shuffled)] == [each.cause for each in ranked(found)]


def test_every_cause_has_its_texts_and_a_question() -> None:
    assert set(TEXTS) == set(Cause)
    for cause in Cause:
        assert cause.questions
        assert cause.advice
        assert not cause.summary.endswith(".")
    assert not any(cause in symptoms for cause, symptoms in EXPLAINS.items()), "nothing explains itself"
