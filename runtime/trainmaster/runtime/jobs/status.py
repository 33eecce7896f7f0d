"""The status of a training job of `kubeflow.org/v1`: its definition. Nothing is read with these models.

Two fields are not in the original, which forgets what it restarted: `restarts` and `restartedPodUIDs`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from trainmaster.runtime.api.meta import DATE_TIME, ApiModel, Schema


class _Condition(ApiModel):
    type: str
    """What it is about: Created, Running, Restarting, Suspended, Succeeded or Failed."""
    status: str
    """Whether it holds: True, False or Unknown."""
    reason: str | None = None
    """Why, as a word for programs."""
    message: str | None = None
    """Why, as a sentence for people."""
    last_update_time: Annotated[str | None, DATE_TIME] = None
    """When the condition was last written."""
    last_transition_time: Annotated[str | None, DATE_TIME] = None
    """When status last changed."""


class _ReplicaStatus(ApiModel):
    active: int | None = None
    """How many pods run."""
    succeeded: int | None = None
    """How many pods have succeeded."""
    failed: int | None = None
    """How many pods have failed."""
    selector: str | None = None
    """Labels of the pods, for autoscalers."""
    label_selector: Annotated[Any, Schema(ref="meta.v1.LabelSelector")] = None
    """Deprecated: selector; never written."""
    restarts: int | None = None
    """How many restarts count against backoffLimit; only where there is one."""
    restarted_pod_uids: Annotated[list[str] | None, Schema(list_type="atomic"), Field(alias="restartedPodUIDs")] = None
    """Pods that are deleted and counted in restarts."""


class JobStatus(ApiModel):
    """What has been observed."""

    conditions: list[_Condition] | None = None
    """What the job has been through; the last one is its state."""
    replica_statuses: dict[str, _ReplicaStatus] | None = None
    """Numbers of pods by state, for each replica type."""
    start_time: Annotated[str | None, DATE_TIME] = None
    """When pods were first created, or created again after a suspension."""
    completion_time: Annotated[str | None, DATE_TIME] = None
    """When the job succeeded or failed."""
    last_reconcile_time: Annotated[str | None, DATE_TIME] = None
    """When the job was last looked at while it waited for its pod group."""
