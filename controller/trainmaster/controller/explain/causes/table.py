"""The table of what finds causes; all of them look at every view, and their order means nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from trainmaster.controller.explain.causes.controllers import (
    another_manager_leads,
    jobset_controller_absent,
    manager_absent,
)
from trainmaster.controller.explain.causes.failures.containers import failed_containers
from trainmaster.controller.explain.causes.failures.gone import of_gone_pods
from trainmaster.controller.explain.causes.failures.told import told_by_manager, told_to_wait
from trainmaster.controller.explain.causes.gangs import gang_incomplete, queue_full
from trainmaster.controller.explain.causes.kueue import queued
from trainmaster.controller.explain.causes.limits import (
    backoff_limit_exceeded,
    deadline_exceeded,
    policy_broken,
    time_to_live_expired,
)
from trainmaster.controller.explain.causes.pods.container_config import container_config_error
from trainmaster.controller.explain.causes.pods.disruptions import disruptions
from trainmaster.controller.explain.causes.pods.images import image_pull_failed
from trainmaster.controller.explain.causes.pods.init_containers import init_container_runs
from trainmaster.controller.explain.causes.pods.scheduling import unschedulable
from trainmaster.controller.explain.causes.pods.sidecars import sidecar_running
from trainmaster.controller.explain.causes.pods.volumes import volume_pending
from trainmaster.controller.explain.causes.pods.world_size import world_size_mismatch
from trainmaster.controller.explain.causes.refusals import blocked, refused, runtime_missing
from trainmaster.controller.explain.causes.suspension import gated, suspended
from trainmaster.controller.explain.findings import Finding
from trainmaster.controller.explain.view import JobView

Finder = Callable[[JobView], Iterable[Finding]]
"""Finds one cause, or some that are seen at the same place. It raises nothing, whatever is in the view."""

FINDERS: Final[Sequence[Finder]] = (
    another_manager_leads,
    backoff_limit_exceeded,
    blocked,
    deadline_exceeded,
    gang_incomplete,
    gated,
    jobset_controller_absent,
    manager_absent,
    policy_broken,
    queue_full,
    queued,
    refused,
    runtime_missing,
    suspended,
    time_to_live_expired,
    told_by_manager,
    told_to_wait,
    unschedulable,
    volume_pending,
    image_pull_failed,
    container_config_error,
    init_container_runs,
    sidecar_running,
    disruptions,
    of_gone_pods,
    failed_containers,
    world_size_mismatch,
)
