"""What is to be done about certificates, decided from what there is and the time; one step at a time.

Guarantees:
- Whoever has what was there before a step, and whoever has what is there after it, trust each other's certificates:
  replicas may learn of a step whenever they do, and a leader may end between any two.
- A new authority is trusted before it signs: it enters `ca.crt` ahead of the old one, and signs nothing before the
  webhook configurations hold both, nor before `PROPAGATION` has passed, in which what trainers trust follows.
- Only then the serving certificate is replaced. An authority that signs no more is trusted until it ends, or until
  everything that it can have signed has.
- The present pair is used as long as it is good; one that is not is replaced as soon as its successor is trusted.
- The serving certificate is renewed apart from the authority, by the one that there is: whom anybody trusts stays as it
  is, so that waits for nothing.
- There are never more than `AUTHORITIES_AT_MOST` authorities, whatever happens to the Secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from cryptography import x509

from trainmaster.controller.certificates.pki import (
    BACKDATE,
    CA_NAME,
    SERVING_VALIDITY,
    dns_names,
    is_authority,
    is_issued_by,
    is_valid_at,
)
from trainmaster.controller.certificates.secret import SecretData

CA_RENEW_BEFORE: Final = timedelta(days=730)
"""Before its end an authority is replaced: everything that it signs until then has ended by itself."""

SERVING_RENEW_BEFORE: Final = timedelta(days=90)
"""As cert-controller looks ahead."""

PROPAGATION: Final = timedelta(hours=1)
"""From a new authority to the first certificate of it: ConfigMaps of TrainJobs are written and reach their pods."""

AUTHORITIES_AT_MOST: Final = 5

LOOK_EVERY: Final = timedelta(hours=12)
"""Between two looks at the time; a machine may have been suspended."""


@dataclass(frozen=True, slots=True)
class NewAuthority:
    """Make another authority; `keep` stay trusted behind it."""

    reason: str
    keep: Sequence[x509.Certificate]


@dataclass(frozen=True, slots=True)
class NewServingPair:
    """Have the authority sign another serving certificate."""

    reason: str


@dataclass(frozen=True, slots=True)
class DropAuthorities:
    """Trust these authorities and no others any more."""

    reason: str
    keep: Sequence[x509.Certificate]


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to do for so long, or until something changes."""

    seconds: float
    for_bundle: str | None = None
    """What would be done if the webhook configurations trusted what they shall."""


Step: TypeAlias = NewAuthority | NewServingPair | DropAuthorities | Wait


def next_step(
    data: SecretData,
    *,
    names: Sequence[str],
    now: datetime,
    bundle_in_place: bool,
    injected: Iterable[x509.Certificate] = (),
) -> Step:
    """Decide.

    Args:
        names: The DNS names of the servers, the one that is needed first.
        now: The time of the API server, which verifies what comes of it.
        bundle_in_place: Whether all webhook configurations of ours trust what `ca.crt` holds.
        injected: What they trust at present: what servers have now was signed by one of these.
    """
    problem = data.signer_problem(now)
    if problem is not None:
        return NewAuthority(problem, _kept([*data.authorities, *injected], data, now))
    signer = data.authorities[0]
    if now >= signer.not_valid_after_utc - CA_RENEW_BEFORE:
        reason = f"the authority ends at {signer.not_valid_after_utc.isoformat()}"
        return NewAuthority(reason, _kept([*data.authorities, *injected], data, now))
    moments = [signer.not_valid_after_utc - CA_RENEW_BEFORE]
    problem = data.serving_problem(names, now)
    serving = data.serving
    if problem is not None or serving is None:
        return _once_trusted(problem or "there is no serving certificate", bundle_in_place=bundle_in_place)
    created = signer.not_valid_before_utc + BACKDATE
    if not is_issued_by(serving, signer):
        if now >= created + PROPAGATION:
            return _once_trusted("its authority has a successor", bundle_in_place=bundle_in_place)
        moments.append(created + PROPAGATION)
    elif now >= serving.not_valid_after_utc - SERVING_RENEW_BEFORE:
        reason = f"the serving certificate ends at {serving.not_valid_after_utc.isoformat()}"
        return NewServingPair(reason)
    else:
        moments.append(serving.not_valid_after_utc - SERVING_RENEW_BEFORE)
        of_predecessors = created + PROPAGATION + SERVING_VALIDITY
        ends = [min(each.not_valid_after_utc, of_predecessors) for each in data.authorities[1:]]
        keep = [signer, *(each for each, end in zip(data.authorities[1:], ends, strict=True) if now <= end)]
        if len(keep) < len(data.authorities):
            return DropAuthorities("nothing that they signed is served any more", keep)
        moments += ends
    left = min(moments) - now
    return Wait(min(max(left, timedelta(seconds=1)), LOOK_EVERY).total_seconds())


def _once_trusted(reason: str, *, bundle_in_place: bool) -> Step:
    return NewServingPair(reason) if bundle_in_place else Wait(LOOK_EVERY.total_seconds(), for_bundle=reason)


def _kept(candidates: Iterable[x509.Certificate], data: SecretData, now: datetime) -> list[x509.Certificate]:
    """Return the authorities that may have signed what is served; those that certainly have come first."""
    serving = data.serving

    def vouches(authority: x509.Certificate) -> bool:
        return serving is not None and is_issued_by(serving, authority)

    usable = [
        each
        for each in dict.fromkeys(candidates)
        if is_authority(each) and is_valid_at(each, now) and (CA_NAME in dns_names(each) or vouches(each))
    ]
    return sorted(usable, key=lambda each: not vouches(each))[: AUTHORITIES_AT_MOST - 1]
