"""The conditions of jobs that the original does not have: their types, and reasons, of events as well, to look for.

All of them are there while they are true, and removed then, not set to False: the Kubeflow SDK takes only a job without
conditions to be running.
"""

from __future__ import annotations

from typing import Final

BLOCKED: Final = "Blocked"
"""True while something keeps the job from being built."""

RUNTIME_NOT_FOUND: Final = "RuntimeNotFound"
"""Condition reason; `trainmaster run` looks for it, because waiting does not help then."""

RUNTIME_DENIED: Final = "RuntimeForbidden"

NAME_TAKEN: Final = "NameTaken"
"""Condition reason: an object of somebody else has the name of one of ours."""

KIND_NOT_SERVED: Final = "KindNotServed"
"""Condition reason: a plugin that serves the job needs a kind that the cluster does not serve."""

JOB_CREATION_FAILED: Final = "JobCreationFailed"
"""The reason of JobSet's event that says why it has no Jobs, and of our condition."""

CONTAINER_FAILED: Final = "ContainerFailed"
"""True from the first failure of a container until the workload is ready again. It is also the reason of the event that
tells of each attempt. The reason of the condition is the cause, as `trainmaster explain` names it.
"""

PLUGIN_SKIPPED: Final = "PluginSkipped"
"""True while a TrainJob goes on without a plugin that failed."""

PLUGIN_FAILED: Final = "PluginFailed"
PLUGIN_QUARANTINED: Final = "PluginQuarantined"
BUILD_REJECTED: Final = "BuildRejected"
"""Condition reasons: what a plugin did that stands in the way."""

WAITING: Final = "Waiting"
"""True while a TrainJob that nothing blocks waits for pods that do not start, from half a minute on. The reason is the
cause, as `trainmaster explain` names it.
"""

TIME_TO_LIVE_EXPIRED: Final = "TimeToLiveExpired"
"""The reason of the event that says why the manager has deleted a TrainJob."""
