"""The table of what finds causes; all of them look at every view, and their order means nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from trainmaster.controller.explain.findings import Finding
from trainmaster.controller.explain.view import JobView

Finder = Callable[[JobView], Iterable[Finding]]
"""Finds one cause, or some that are seen at the same place. It raises nothing, whatever is in the view."""

OF_JOBS: Final[Sequence[Finder]] = ()
"""Causes that a job has as a whole, or that its cluster has."""

OF_PODS: Final[Sequence[Finder]] = ()
"""Causes that its pods have."""

FINDERS: Final[Sequence[Finder]] = (*OF_JOBS, *OF_PODS)
