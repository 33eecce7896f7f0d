"""Rotation in virtual time: years pass, replicas are late, leaders end between any two writes and follow each other.

Whatever happens, each certificate that is served is trusted by what the webhook configurations hold at that moment, and
by the authority that trainers were given.
"""

import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st
from support.certificates import go_secret, good_secret, names, quick_keys, written

from trainmaster.controller.certificates import rotation, secret
from trainmaster.controller.certificates.pki import (
    CA_VALIDITY,
    SERVING_VALIDITY,
    KeyPair,
    is_issued_by,
    is_valid_at,
    new_authority,
    new_serving_pair,
    read_certificates,
    to_pem,
)
from trainmaster.controller.certificates.rotation import (
    AUTHORITIES_AT_MOST,
    CA_RENEW_BEFORE,
    LOOK_EVERY,
    PROPAGATION,
    SERVING_RENEW_BEFORE,
    DropAuthorities,
    NewAuthority,
    NewServingPair,
    Step,
    Wait,
    next_step,
)
from trainmaster.controller.certificates.secret import SecretData

NAMES = names()
START = datetime(2026, 5, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


_issued = functools.lru_cache(maxsize=None)(is_issued_by)
"""Signatures are most of the time of these tests."""


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with (
        quick_keys(),
        mock.patch.object(rotation, "is_issued_by", _issued),
        mock.patch.object(secret, "is_issued_by", _issued),
    ):
        yield


def decide(
    data: SecretData, now: datetime, *, in_place: bool = True, injected: Sequence[x509.Certificate] = ()
) -> Step:
    return next_step(data, names=NAMES, now=now, bundle_in_place=in_place, injected=injected)


def test_an_empty_secret_gets_an_authority_which_signs_once_it_is_trusted() -> None:
    assert decide(SecretData(), START) == NewAuthority("there is no authority yet", [])
    _, made = new_authority(now=START)
    alone = written(made)
    step = decide(alone, START, in_place=False)
    assert isinstance(step, Wait)
    assert step.for_bundle == "there is no serving certificate yet"
    assert decide(alone, START) == NewServingPair("there is no serving certificate yet")


def test_what_is_good_is_left_alone_until_it_is_time_also_if_a_go_manager_has_written_it() -> None:
    data, theirs = good_secret(START), go_secret(now=START)
    assert isinstance(decide(data, START), Wait)
    assert isinstance(decide(theirs, START + DAY), Wait)
    due = START + SERVING_VALIDITY - SERVING_RENEW_BEFORE
    assert isinstance(decide(theirs, due), NewServingPair)
    assert decide(data, due - HOUR) == Wait(HOUR.total_seconds())
    assert isinstance(decide(data, due), NewServingPair)
    assert isinstance(decide(data, due, in_place=False), NewServingPair), "whom anybody trusts stays as it is"


def test_an_old_authority_is_followed_by_another_and_trusted_on() -> None:
    data = good_secret(START)
    due = START + CA_VALIDITY - CA_RENEW_BEFORE
    step = decide(data, due)
    assert isinstance(step, NewAuthority)
    assert step.keep == data.authorities
    assert isinstance(decide(good_secret(START), due - HOUR), NewServingPair), (
        "its own has ended, and is another matter"
    )
    wiped = decide(SecretData(), START + DAY, injected=data.authorities)
    assert isinstance(wiped, NewAuthority)
    assert wiped.keep == data.authorities, "what is trusted stays so"


def test_a_new_authority_signs_when_everybody_had_time_to_hear_of_it() -> None:
    old = good_secret(START)
    later = START + DAY
    _, new = new_authority(now=later)
    both = SecretData(new.certificate + old.ca_certificate, new.key, old.certificate, old.key)
    assert decide(both, later) == Wait(PROPAGATION.total_seconds())
    assert decide(both, later + PROPAGATION, in_place=False) == Wait(43200.0, "its authority has a successor")
    assert decide(both, later + PROPAGATION) == NewServingPair("its authority has a successor")


def test_a_predecessor_is_trusted_until_nothing_of_it_can_be_served() -> None:
    old = good_secret(START)
    later = START + DAY
    authority, new = new_authority(now=later)
    now = later + SERVING_VALIDITY - DAY
    pair = new_serving_pair(authority, NAMES, now=now)
    both = written(KeyPair(new.certificate + old.ca_certificate, new.key), pair)
    assert isinstance(decide(both, now), Wait)
    step = decide(both, now + DAY + 2 * HOUR)
    assert isinstance(step, DropAuthorities)
    assert step.keep == both.authorities[:1]


def test_a_foreign_authority_is_replaced_and_trusted_while_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("trainmaster.controller.certificates.pki.CA_NAME", "company-root")
        foreign = good_secret(START)
        unused, _ = new_authority(now=START)
    step = decide(foreign, START, injected=[unused.certificate])
    assert isinstance(step, NewAuthority)
    assert step.reason == "the authority in ca.crt is foreign: it is not named kubeflow-trainer-ca"
    assert step.keep == foreign.authorities, "and nothing that vouches for nothing"


def test_however_often_its_key_is_lost_there_are_few_authorities() -> None:
    data = good_secret(START)
    for day in range(1, 12):
        step = decide(SecretData(data.ca_certificate, b"lost", data.certificate, data.key), START + day * DAY)
        assert isinstance(step, NewAuthority)
        _, new = new_authority(now=START + day * DAY)
        data = SecretData(new.certificate + to_pem(step.keep), new.key, data.certificate, data.key)
        assert len(data.authorities) <= AUTHORITIES_AT_MOST
        assert data.serving_problem(NAMES, START + day * DAY) is None, "what is served is trusted on"


@dataclass
class Replica:
    """A manager: what it serves, and the authorities that it tells trainers to trust."""

    served: KeyPair | None = None
    authorities: list[x509.Certificate] = field(default_factory=list)

    def read(self, data: SecretData) -> None:
        """See the Secret, and take of it what fits."""
        if data.pair_problem is None:
            self.served = KeyPair(data.certificate, data.key)
        if data.authorities:
            self.authorities = data.authorities


@dataclass
class Configuration:
    """What a webhook configuration trusts, and its version."""

    bundle: list[x509.Certificate] = field(default_factory=list)
    version: int = 0


_decided = functools.lru_cache(maxsize=None)(decide)
_read = functools.lru_cache(maxsize=None)(read_certificates)
"""Whoever leads looks at the same again and again."""


class World:
    """A Secret, two webhook configurations, replicas, and leaders that follow each other."""

    def __init__(self, *, replicas: int) -> None:
        self.now = START
        self.secret = SecretData()
        self.version = 0
        self.configurations = [Configuration(), Configuration()]
        self.replicas = [Replica() for _ in range(replicas)]
        self.trainers: list[x509.Certificate] = []
        self.writes = 0

    def leader(self) -> Iterator[None]:
        """Lead, with pauses in which anything may happen; abandoned, it has ended at one of them.

        As the rotator does, it looks at the configurations before it reads the Secret, and writes only the versions
        that it has seen.
        """
        while True:
            seen = [Configuration(each.bundle, each.version) for each in self.configurations]
            yield
            data, version = self.secret, self.version
            in_place = all(set(each.bundle) == set(data.authorities) for each in seen)
            injected = tuple(one for each in seen for one in each.bundle)
            step = _decided(data, self.now, in_place=in_place, injected=injected)
            after = None
            match step:
                case NewAuthority():
                    _, made = new_authority(now=self.now)
                    after = SecretData(made.certificate + to_pem(step.keep), made.key, data.certificate, data.key)
                case NewServingPair():
                    pair = new_serving_pair(data.signer(), NAMES, now=self.now)
                    after = SecretData(to_pem(data.authorities), data.ca_key, pair.certificate, pair.key)
                case DropAuthorities():
                    after = SecretData(to_pem(step.keep), data.ca_key, data.certificate, data.key)
                case Wait():
                    for each, now in zip(seen, self.configurations, strict=True):
                        if set(each.bundle) != set(data.authorities):
                            yield
                            if each.version == now.version:
                                now.bundle, now.version = data.authorities, now.version + 1
                                self.writes += 1
            if after is not None:
                yield
                if version == self.version:
                    self.secret, self.version, self.writes = after, version + 1, self.writes + 1

    def check(self) -> None:
        """Every certificate that is served is trusted by everybody who has to."""
        for replica in self.replicas:
            if replica.served is None:
                continue
            [served] = _read(replica.served.certificate)
            assert is_valid_at(served, self.now), f"an ended certificate is served at {self.now}"
            for trusted in (*(each.bundle for each in self.configurations), *filter(None, [self.trainers])):
                assert any(is_valid_at(each, self.now) and _issued(served, each) for each in trusted), self.now


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), replicas=st.integers(1, 3))
def test_at_any_moment_what_is_served_is_trusted(seed: int, replicas: int) -> None:
    draw = random.Random(seed)
    world = World(replicas=replicas)
    leaders = [world.leader()]
    end = START + draw.choice([timedelta(days=400), 2 * CA_VALIDITY])
    while world.now < end:
        # Events in no particular order: leaders act, end, and think that they lead although another one does.
        for _ in range(draw.randrange(4, 16)):
            match draw.randrange(8):
                case 0:
                    leaders = [world.leader()]
                case 1 if len(leaders) < 2:
                    leaders.append(world.leader())
                case 2:
                    draw.choice(world.replicas).read(world.secret)
                case _:
                    next(draw.choice(leaders))
            world.check()
        # Before the time of propagation is over everybody has heard of everything, in whatever order.
        for _ in range(16):
            next(leaders[-1])
            world.check()
        for replica in draw.sample(world.replicas, k=len(world.replicas)):
            replica.read(world.secret)
            world.trainers = world.replicas[-1].authorities or world.trainers
            world.check()
        assert all(replica.served is not None for replica in world.replicas)
        settled = world.writes
        for _ in range(6):
            next(leaders[-1])
        assert world.writes == settled, "what is settled is written again"
        pause = draw.choice([PROPAGATION, 60 * DAY, 80 * DAY, 80 * DAY])
        step = decide(world.secret, world.now)
        if isinstance(step, Wait) and step.seconds < LOOK_EVERY.total_seconds():
            pause = min(pause, timedelta(seconds=step.seconds))  # some leader wakes up then
        world.now += pause
    if end > START + CA_VALIDITY:
        assert world.secret.authorities[0].not_valid_after_utc > START + CA_VALIDITY, "it was never replaced"
