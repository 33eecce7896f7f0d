"""Counter changes: events of JobSets that tell of nothing but how many pods do what.

The pods of a job come up one by one, and each of them is an event of its JobSet. The counts are written at most once a
second (see `StatusWriter`), so a reconcile for each of these events would find out that it has to wait.

Guarantees:
- A change is one of counters only if the JobSet is what its last event showed but for the counts of its Jobs, if no
  count tells of a failure, and if none is gone.
- What is remembered are some four hundred bytes for each JobSet that is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import orjson

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.reconciling.trainjobs.replicated_jobs import Counts, counts_of, fails
from trainmaster.runtime.jsontree import JsonObject

_COUNTS = "replicatedJobsStatus"


class CounterChanges:
    """Remembers, by its key, what the last event of each JobSet has shown."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[bytes, tuple[tuple[str, int, int, int, int], ...]]] = {}
        """Plain tuples, because the collector stops tracking those of plain values."""

    def __len__(self) -> int:
        return len(self._seen)

    def note(self, change: Delta) -> bool:
        """Take note of what became of a JobSet; tell whether nothing but counters did, and none for the worse."""
        before = self._seen.pop(change.key, None)
        if change.new is None:
            return False
        try:
            rest, counts = _read(change.new)
            only_counters = before is not None and before[0] == rest and not _is_for_the_worse(before[1], counts)
        except (AttributeError, KeyError, TypeError):
            return False  # its status is none that a JobSet has
        self._seen[change.key] = rest, tuple((name, *each) for name, each in counts.items())
        return only_counters


def _is_for_the_worse(seen: Iterable[tuple[str, int, int, int, int]], now: Mapping[str, Counts]) -> bool:
    before = {name: Counts(*each) for name, *each in seen}
    return not before.keys() <= now.keys() or fails(before, now)


def _read(jobset: JsonObject) -> tuple[bytes, dict[str, Counts]]:
    """Return what stands for all of a JobSet but its counts, and these."""
    metadata = {**jobset["metadata"], "resourceVersion": None}
    spec = None if metadata.get("generation") else jobset.get("spec")  # each change of a spec is another generation
    status = jobset.get("status") or {}
    rest = {field: value for field, value in status.items() if value and field != _COUNTS}
    # In the order of the server, which stays the same: it takes much of the time to sort them.
    content = blake2b(orjson.dumps([metadata, spec, rest]), digest_size=16).digest()
    return content, counts_of(status.get(_COUNTS) or ())
