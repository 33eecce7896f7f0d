"""CoScheduling: gangs for the coscheduling plugin of the Kubernetes scheduler (scheduler-plugins).

The members of the gang get the label that names their PodGroup. The runtime says which scheduler they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.plugins.util.podgroup import (
    TWO_SCHEDULERS,
    gang_of,
    has_two_schedulers,
    left_out,
    mark,
    pod_group,
    refuse_two_schedulers,
    watches,
)
from trainmaster.runtime.api.constants import COSCHEDULING_API_VERSION, COSCHEDULING_POD_LABEL
from trainmaster.runtime.api.trainingruntime import CoschedulingPolicy
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.info import Info
from trainmaster.runtime.listers import Listers, Watch


class CoScheduling:
    """Serves `podGroupPolicy.coscheduling`."""

    name = "coscheduling"
    policies = ("coscheduling",)

    def watch_extension(self) -> Iterable[Watch]:
        """The PodGroups of coscheduling, and what they are computed from."""
        return watches(COSCHEDULING_API_VERSION)

    def enforce_pod_group(self, info: Info, job: TrainJob) -> None:
        """Label the pods of the gang."""
        if _policy(info) is None:
            return
        refuse_two_schedulers(info)
        for pods in gang_of(info).members:
            mark(pods, "labels", COSCHEDULING_POD_LABEL, job.metadata.name)

    def build(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[Desired]:
        """Return the PodGroup."""
        policy = _policy(info)
        if policy is not None:
            yield from pod_group(
                gang_of(info),
                job,
                listers,
                api_version=COSCHEDULING_API_VERSION,
                scheduleTimeoutSeconds=policy.schedule_timeout_seconds,
            )

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterator[FieldError | FieldWarning]:
        """Refuse a second scheduler, and warn about a gang that is not whole."""
        if _policy(info) is None:
            return
        if has_two_schedulers(info):
            yield FieldError("spec.runtimeRef", TWO_SCHEDULERS, value=job.spec.runtime_ref.to_json())
        else:
            yield from left_out(info)


def _policy(info: Info) -> CoschedulingPolicy | None:
    return info.pod_group_policy.coscheduling if info.pod_group_policy else None
