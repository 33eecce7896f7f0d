"""Restarts: what a replica type's restart policy and the job's backoffLimit are in the words of a Kubernetes Job.

| restartPolicy | pod | Job |
|---|---|---|
| Always, OnFailure | OnFailure | restarts without end, or up to backoffLimit |
| Never | Never | fails with the first pod |
| ExitCode | Never | fails with exit codes 1 to 127, makes the pod again after others, up to backoffLimit |
"""

from __future__ import annotations

from typing import Final

from trainmaster.runtime.conversion.notes import Notes
from trainmaster.runtime.jobs.constants import ALWAYS, EXIT_CODE, NEVER, ON_FAILURE
from trainmaster.runtime.jsontree import JsonObject

ENDLESS: Final = 2**31 - 1
"""The backoffLimit of a Job that never gives up: an absent one would mean 6."""

PERMANENT_EXIT_CODES: Final = range(1, 128)
"""After which V1 does not try again under the policy ExitCode."""


def job_spec(policy: str, backoff_limit: int | None, container: str) -> JsonObject:
    """Return the fields of a Job by which its pods are restarted as those of V1.

    Args:
        policy: The restart policy of the replica type.
        backoff_limit: That of the job, if it has one.
        container: The one whose exit code counts.
    """
    if policy == NEVER:
        return {"backoffLimit": 0}
    spec: JsonObject = {"backoffLimit": ENDLESS if backoff_limit is None else backoff_limit}
    if policy == EXIT_CODE:
        codes = {"containerName": container, "operator": "In", "values": list(PERMANENT_EXIT_CODES)}
        spec["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    return spec


def pod_restart_policy(policy: str) -> str:
    """Return the restart policy of the pods."""
    return ON_FAILURE if policy in (ALWAYS, ON_FAILURE) else NEVER


def tell_restarts(policy: str, backoff_limit: int | None, path: str, notes: Notes) -> None:
    """Tell where a Job differs."""
    if policy == ALWAYS:
        notes.lose(path, "becomes OnFailure: a Job cannot start a container again that has ended well")
    if policy == NEVER and backoff_limit:
        notes.tell("spec.runPolicy.backoffLimit", f"does not count for {path}: Never, where the first failure is final")
