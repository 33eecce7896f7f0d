"""Which traces are recorded."""

from __future__ import annotations

from uuid import UUID

import pytest
from opentelemetry.sdk.trace.sampling import Decision, Sampler

from trainmaster.controller.tracing.sampler import new_sampler

UIDS = [str(UUID(int=number << 64 | number)) for number in range(10_000)]


def sampled(sampler: Sampler, trace_id: int, uid: str | None) -> bool:
    attributes = {"k8s.trainjob.name": "demo"} | ({"k8s.trainjob.uid": uid} if uid else {})
    return (
        sampler.should_sample(None, trace_id, "reconcile", attributes=attributes).decision is Decision.RECORD_AND_SAMPLE
    )


@pytest.mark.guarantee("K-14")
def test_of_one_object_all_reconciles_are_recorded_or_none() -> None:
    sampler = new_sampler(100_000)
    found = [{sampled(sampler, trace_id, uid) for trace_id in (1, 2**63, 2**127 + 5)} for uid in UIDS]
    assert all(len(each) == 1 for each in found)
    assert 800 < sum(each == {True} for each in found) < 1200, "one in ten"
    for rate, some in ((0, False), (1_000_000, True)):
        assert {sampled(new_sampler(rate), 2**64 - 1, uid) for uid in (*UIDS[:50], None)} == {some}
