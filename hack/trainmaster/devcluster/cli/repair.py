"""`cluster repair`: keep what can be read of a damaged journal."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.storage import JournalError
from trainmaster.devcluster.apiserver.storage import repair as repair_journal
from trainmaster.devcluster.state import StateDirectory, StateError

_SHOWN = 10
"""Damages that are listed; more of them are counted."""


def repair(state: StateDirectory) -> int:
    """Repair the journal of a cluster that does not run, and say what is lost; returns the exit code."""
    if not state.journal.exists():
        raise StateError(f"there is no cluster in {state.path}; name its directory with --state-dir")
    with state.in_use(), state.hold():
        try:
            done = repair_journal(state.journal)
        except JournalError as error:
            raise state.unusable_journal(error) from error
    if done.original is None:
        print(f"{state.journal} is not damaged; nothing was changed")
        return 0
    print(f"repaired {state.journal}: it has {done.objects} objects")
    print(f"  the damaged file is now {done.original}")
    for damage in done.damages[:_SHOWN]:
        print(f"  {damage}")
    if len(done.damages) > _SHOWN:
        print(f"  and {len(done.damages) - _SHOWN} more")
    print("What those lines said is lost: objects may be missing, older than they were, or back after their deletion.")
    print("What next: start the cluster, and look at what is in it.")
    return 0
