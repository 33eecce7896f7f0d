"""Which failed requests are sent again, when, and how often.

Guarantees:
- T-3, R-33: an answer 429 or 503 with Retry-After is tried again after that time, whatever the verb: the server turned
  the request away before it acted. Another 5xx with Retry-After may come after it acted, so it is tried again only for
  a repeatable request. Without Retry-After every refusal is final.
- T-2: that is how the priority and fairness of the server is heeded, which by default is the only limit on us.
- A request that cannot have reached the server is sent again, whatever the verb; so is a repeatable one whose answer
  was lost. Any other write whose answer was lost is not: only the caller can find out whether it was performed.
- A request that ran into its timeout is not: so much later the caller may want something else (C-1).
- A certificate that we do not accept stays that way: it is no reason to try again.
- The number of tries is bounded, and all waits of one request together are no longer than `WAITS_AT_MOST`, half of what
  a reconcile may take: the refusal of a server that asks for more is given to the caller, who has better things to
  wait for.
- W-15: waits that we choose ourselves are random, so that clients that failed together do not return together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import tenacity

from trainmaster.controller.kube.clock import Random
from trainmaster.controller.kube.rest.errors import (
    ApiError,
    CertificateRejected,
    KubeError,
    NotConnected,
    RequestTimeout,
    TransportError,
)

TRIES: Final = 5
"""Half of client-go's ten, because the work queue tries again as well."""

WAITS_AT_MOST: Final = 60.0
"""Seconds; kube-apiserver asks for one at a time, its storage layer for up to ten."""

_FIRST_PAUSE: Final = 0.2
_PAUSE_AT_MOST: Final = 5.0


class RetryPolicy:
    """Decides on the retries of one client's requests."""

    def __init__(self, *, tries: int, random: Random, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._tries = tries
        self._random = random
        self._sleep = sleep

    def retrying(self, *, repeatable: bool, before_retry: Callable[[KubeError, int], None]) -> tenacity.AsyncRetrying:
        """Return what runs one request until it succeeds or fails for good.

        Args:
            repeatable: Whether performing the request twice comes to the same as performing it once.
            before_retry: Called with each failure that another try follows, and the number of that failed try.
        """
        # One for each request: tenacity keeps the state of a run in the object itself.
        return tenacity.AsyncRetrying(
            sleep=self._sleep,
            stop=self._is_enough,
            retry=tenacity.retry_if_exception(lambda error: _is_worth_a_try(error, repeatable=repeatable)),
            wait=self._pause,
            before_sleep=lambda state: before_retry(_error_of(state), state.attempt_number),
            reraise=True,
        )

    def _is_enough(self, state: tenacity.RetryCallState) -> bool:
        return state.attempt_number >= self._tries or state.idle_for + state.upcoming_sleep > WAITS_AT_MOST

    def _pause(self, state: tenacity.RetryCallState) -> float:
        """Wait as long as the server asked for; without its word longer each time, and at random."""
        error = _error_of(state)
        if isinstance(error, ApiError) and error.retry_after is not None:
            return error.retry_after
        return self._random() * min(_FIRST_PAUSE * 2.0**state.attempt_number, _PAUSE_AT_MOST)


def _is_worth_a_try(error: BaseException, *, repeatable: bool) -> bool:
    if isinstance(error, ApiError):
        turned_away = error.status in {429, 503} or (repeatable and error.status >= 500)
        return turned_away and error.retry_after is not None
    if isinstance(error, (CertificateRejected, RequestTimeout)):
        return False
    return isinstance(error, NotConnected) or (repeatable and isinstance(error, TransportError))


def _error_of(state: tenacity.RetryCallState) -> KubeError:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, KubeError):
        raise TypeError(f"nothing else is tried again, not {error!r}")
    return error
