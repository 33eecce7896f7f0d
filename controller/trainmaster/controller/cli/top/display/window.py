"""Which jobs are shown of those that there are: their order, a filter, the part that fits, and the one selected.

A job that is selected stays so while others move around it, and is always seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from trainmaster.controller.cli.top.cluster.attention import Order, TopJob, matching, ordered

Key = tuple[str, str, str]


class Window:
    """A view of jobs."""

    def __init__(self) -> None:
        self.order = Order.ATTENTION
        self.filter = ""
        self._jobs: Sequence[TopJob] = ()
        self._top = 0
        self._height = 1
        self.selected = 0
        """The number of the selected job, counted from 0."""

        self._has_moved = False
        """Whether somebody has chosen a job; before that, the first one is selected, whichever that is."""

        self.selected_key: Key | None = None

    @property
    def count(self) -> int:
        """How many jobs there are, the filter considered."""
        return len(self._jobs)

    @property
    def job(self) -> TopJob | None:
        """The selected one."""
        return self._jobs[self.selected] if self._jobs else None

    def take(self, jobs: Iterable[TopJob], now: datetime) -> None:
        """Take the jobs that there are now."""
        self._jobs = ordered(matching(list(jobs), self.filter), self.order, now)
        if self._has_moved:
            places = (index for index, job in enumerate(self._jobs) if job.key == self.selected_key)
            self.selected = next(places, min(self.selected, max(0, self.count - 1)))
        else:
            self.selected = 0
        self._select(self.selected)

    def move(self, by: int) -> None:
        """Select another job."""
        self._has_moved = True
        self._select(self.selected + by)

    def move_page(self, by: int) -> None:
        """Select the job a page further."""
        self.move(by * self._height)

    def move_to_end(self, *, first: bool) -> None:
        """Select the first or the last job."""
        self._has_moved = not first
        self._select(0 if first else self.count - 1)

    def shown(self, height: int) -> Sequence[TopJob]:
        """Return the jobs that are seen in so many rows."""
        self._height = height
        self._top = min(max(self._top, self.selected - height + 1), self.selected)
        self._top = max(0, min(self._top, self.count - height))
        return self._jobs[self._top : self._top + height]

    def _select(self, index: int) -> None:
        self.selected = max(0, min(index, self.count - 1))
        self.selected_key = self._jobs[self.selected].key if self._jobs else None
