"""Leases, as leader election uses them."""

from __future__ import annotations

import pytest
from support.conformance import Collection
from support.samples import lease


@pytest.mark.parametrize(
    ("time", "rest"),
    [
        ("2026-01-01T00:00:00Z", 'cannot parse "Z" as ".000000"'),
        ("2026-01-01T01:00:00.5+01:00", 'cannot parse ".5+01:00" as ".000000"'),
        ("2026-01-01T00:00:00.1234567Z", 'cannot parse "7Z" as "Z07:00"'),
    ],
)
async def test_a_time_of_a_lease_has_six_digits_behind_the_second(leases: Collection, time: str, rest: str) -> None:
    message = (await leases.create(lease("a", renewTime=time))).refused(400, "BadRequest")["message"]
    assert message == (
        'Lease in version "v1" cannot be handled as a Lease: '
        f'parsing time "{time}" as "2006-01-02T15:04:05.000000Z07:00": {rest}'
    )


async def test_a_time_of_a_lease_is_printed_in_utc(leases: Collection) -> None:
    spec = (await leases.made(lease("a", renewTime="2026-01-01T01:00:00.500000+01:00")))["spec"]
    assert spec["renewTime"] == "2026-01-01T00:00:00.500000Z"


async def test_one_of_two_candidates_wins(leases: Collection) -> None:
    (await leases.create(lease("a", holderIdentity="one"))).ok(201)
    (await leases.create(lease("a", holderIdentity="two"))).refused(409, "AlreadyExists")
    assert (await leases.read("a"))["spec"]["holderIdentity"] == "one"


async def test_one_of_two_renewals_wins(leases: Collection) -> None:
    held = await leases.made(lease("a", holderIdentity="one"))
    for holder, winner in (("two", True), ("three", False)):
        answer = await leases.put({**held, "spec": {**held["spec"], "holderIdentity": holder}})
        assert answer.status == (200 if winner else 409)
    assert (await leases.read("a"))["spec"]["holderIdentity"] == "two"
