"""The authorizer: may the bearer of this token report for this TrainJob?

Guarantees:
- trainer S2: only a pod of the TrainJob may, and only while the TrainJob is not finished. A token of another pod of the
  namespace is refused even if it was made for this TrainJob.
- A refusal does not say why: it is the same for a TrainJob that does not exist, a wrong token, and none. Only who has
  proven to belong to a TrainJob gets to know that it has finished.
- What costs the API server nothing is checked first. Who keeps sending tokens that are refused is not reviewed again
  for a while.
- No token is in a log, a metric or an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.ratelimit import KeyedRateLimiter
from trainmaster.controller.statusserver.pod_owners import PodOwners
from trainmaster.controller.statusserver.token_review import TokenReviewer
from trainmaster.runtime.api.constants import COMPLETE, FAILED, status_audience

FINAL: Final = frozenset({COMPLETE, FAILED})

REFUSALS_QPS: Final = 0.2
REFUSALS_BURST: Final = 10
"""For each peer: a trainer whose token has just ended, or whose TrainJob was deleted, is refused a few times."""

_PEERS: Final = 4096


class Denied(Exception):
    """The report is not accepted."""


class Finished(Exception):
    """The bearer belongs to the TrainJob, but that has finished."""


class TooMany(Exception):
    """The peer was refused too often; it may try again after `retry_after` seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"try again in {retry_after:.0f} s")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Target:
    """The TrainJob that a report is about."""

    namespace: str
    name: str
    uid: str


class Authorizer:
    """Decides who may report.

    Args:
        client: Reviews tokens and reads metadata.
        trainjobs: The cache of TrainJobs.
        clock: The time.
    """

    def __init__(self, client: KubeClient, trainjobs: Store, *, clock: Clock) -> None:
        self._trainjobs = trainjobs
        self._reviewer = TokenReviewer(client, clock=clock)
        self._owners = PodOwners(client, clock=clock)
        self._refusals: KeyedRateLimiter[str] = KeyedRateLimiter(
            qps=REFUSALS_QPS, burst=REFUSALS_BURST, maxsize=_PEERS, clock=clock
        )

    async def authorize(self, authorization: str | None, *, namespace: str, name: str, peer: str) -> Target:
        """Return the TrainJob that the bearer may report for.

        Raises:
            Denied: It may not.
            Finished: It may not any more.
            TooMany: The peer was refused too often.
            KubeError: The API server could not be asked.
        """
        token = bearer_token(authorization)
        trainjob = self._trainjobs.get(f"{namespace}/{name}")
        if not token or trainjob is None:
            raise Denied
        audience = status_audience(namespace, name)
        if not self._reviewer.is_cached(token, audience=audience):
            delay = self._refusals.delay(peer)
            if delay:
                raise TooMany(delay)
        uid = trainjob["metadata"]["uid"]
        pod = await self._reviewer.review(token, audience=audience)
        if pod is None or pod.namespace != namespace:
            self._refusals.try_accept(peer)
            raise Denied
        if not await self._owners.is_owned(pod, trainjob=name, uid=uid):
            self._refusals.try_accept(peer)
            raise Denied
        conditions = (trainjob.get("status") or {}).get("conditions") or ()
        if any(condition.get("type") in FINAL and condition.get("status") == "True" for condition in conditions):
            raise Finished
        return Target(namespace, name, uid)


def bearer_token(header: str | None) -> str:
    """Read the token of an Authorization header: two words, the first one `Bearer` in any case; otherwise nothing."""
    words = (header or "").split()
    return words[1] if len(words) == 2 and words[0].lower() == "bearer" else ""
