"""Which keys a change of an object concerns: by its state after the change, and by that before it.

Guarantees:
- E-4: a change concerns what the object belongs to after it, and what it belonged to before.
- What it belonged to before is remembered, not read again: the state before is not decoded. A state that cannot be read
  takes nothing away from those before and after it.
- P-22: of an object that belongs to what its key says, as most do, nothing is kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.runtime.jsontree import JsonObject


class ConcernedKeys:
    """Maps the changes of one collection.

    Args:
        keys_of: Maps a state of an object.
        usual: To what an object most often belongs, by its key alone; a bad guess costs memory, nothing else.
    """

    def __init__(
        self, keys_of: Callable[[JsonObject], Iterable[str]], *, usual: Callable[[str], str] = lambda key: key
    ) -> None:
        self._keys_of = keys_of
        self._usual = usual
        self._unusual: dict[str, tuple[str, ...]] = {}
        """What each object belongs to that does not belong to what is usual."""

    def __len__(self) -> int:
        return len(self._unusual)

    def __call__(self, change: Delta) -> Iterable[str]:
        """Return the keys that a change concerns."""
        state = change.old if change.is_deletion else change.new
        assert state is not None  # noqa: S101 - there is one before or after
        after = tuple(dict.fromkeys(self._keys_of(state)))
        if change.resync:
            return after
        key = change.key
        usual = (self._usual(key),)
        before = () if change.is_addition else self._unusual.get(key, usual)
        if change.is_deletion or after == usual:
            self._unusual.pop(key, None)
        else:
            self._unusual[key] = after
        return after if after == before else dict.fromkeys((*before, *after))
