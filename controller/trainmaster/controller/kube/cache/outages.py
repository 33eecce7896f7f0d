"""What keeps several collections from being read at once is told by one: the API server is away, or refuses all.

Guarantees:
- E-8: of a reason that concerns all collections alike the first one tells, its end as well; the others do at debug
  level. What a collection alone lacks, its definition or a permission, it tells by itself.
"""

from __future__ import annotations

from typing import TypeAlias

from trainmaster.controller.kube.cache.listwatch import ListWatchFailure
from trainmaster.controller.kube.rest.errors import ApiError, TransportError

_Reason: TypeAlias = tuple[str, int]


class Outages:
    """The reasons for which collections cannot be read at present, shared by those who read them."""

    def __init__(self) -> None:
        self._tellers: dict[_Reason, object] = {}

    def note(self, who: object, failure: ListWatchFailure | None) -> bool:
        """Take note of how a collection fares; returns whether it is the one that tells of it."""
        reason = _common_reason(failure)
        for told, teller in list(self._tellers.items()):
            if teller == who and told != reason:
                del self._tellers[told]
        return reason is None or self._tellers.setdefault(reason, who) == who


def _common_reason(failure: ListWatchFailure | None) -> _Reason | None:
    """Return what all collections would tell alike; None if this one alone is concerned."""
    if failure is None:
        return None
    if isinstance(failure.error, TransportError):
        return "transport", 0
    if isinstance(failure.error, ApiError) and not failure.is_refused:
        return "status", failure.error.status
    return None
