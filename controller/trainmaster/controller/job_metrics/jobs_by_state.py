"""How many jobs of one kind are in which state, followed from the events of their cache.

Every replica follows the jobs, and the one that leads shows their numbers: right from the moment in which it does.
"""

from __future__ import annotations

from typing import Final

from trainmaster.controller.conditions import is_true, stored_status
from trainmaster.controller.explain.state import State
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.reconciling.jobs.observe import managed_by
from trainmaster.metrics.jobs import JOBS
from trainmaster.metrics.series import Amounts
from trainmaster.runtime.jobs.constants import (
    FAILED,
    MANAGED_BY_TRAINING_OPERATOR,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
)
from trainmaster.runtime.jsontree import JsonObject

_STATES: Final = {
    FAILED: State.FAILED,
    SUCCEEDED: State.COMPLETE,
    SUSPENDED: State.SUSPENDED,
    RESTARTING: State.RESTARTING,
    RUNNING: State.RUNNING,
}
"""By the condition that holds, the first of these."""

STATES: Final = (State.WAITING, *_STATES.values(), State.TERMINATING)


class JobStates:
    """The states of the jobs of one kind.

    Args:
        framework: Its name, for instance `pytorch`.
    """

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._states: dict[str, State] = {}
        self._amounts = Amounts()

    def lead(self) -> None:
        """Show the numbers from now on: this process leads."""
        JOBS.show(self._amounts)

    def close(self) -> None:
        """Show them no longer: the manager ends."""
        JOBS.hide(self._amounts)

    def on_event(self, change: Delta) -> None:
        """Handle an event of a job."""
        before = self._states.get(change.key)
        now = None if change.new is None else state_of(change.new)
        if now is before:
            return
        if before is not None:
            self._amounts.add(-1, self._framework, before)
        if now is None:
            del self._states[change.key]
        else:
            self._states[change.key] = now
            self._amounts.add(1, self._framework, now)


def state_of(raw: JsonObject) -> State | None:
    """Return the state of a job as `trainmaster explain` calls it; None if it is another controller's."""
    if managed_by(raw) != MANAGED_BY_TRAINING_OPERATOR:
        return None
    if raw["metadata"].get("deletionTimestamp"):
        return State.TERMINATING
    conditions = stored_status(raw)["conditions"]
    return next((state for name, state in _STATES.items() if is_true(conditions, name)), State.WAITING)
