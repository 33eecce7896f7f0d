"""What an operator of the embedded cluster may tune about its controllers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Pauses in seconds; the defaults suit a laptop, where nobody wants to wait as long as a shared cluster does."""

    job_backoff_base: float = 1.0
    """Pause before the first replacement of a failed pod of a Job, doubled with each further one; 0: no pause."""

    job_backoff_cap: float = 600.0
    """Longest pause between two replacements (Kubernetes: ten minutes)."""

    retry_base: float = 0.05
    """Pause before a reconcile that raised an error is repeated, doubled with each further error of the same object."""

    retry_cap: float = 30.0
    """Longest pause between two attempts of a failing reconcile."""

    scheduler_names: frozenset[str] = frozenset({"default-scheduler", "scheduler-plugins-scheduler", "volcano"})
    """Values of `spec.schedulerName` that the built-in scheduler serves: the usual one, and the gang schedulers."""
