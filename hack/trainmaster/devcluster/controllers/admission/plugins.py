"""The plugins together, in the order in which a real API server runs them."""

from __future__ import annotations

from trainmaster.devcluster.api import Api
from trainmaster.devcluster.controllers.admission import limits, priorities, quotas, runtimeclasses
from trainmaster.devcluster.resources import PERSISTENT_VOLUME_CLAIMS, PODS, PRIORITY_CLASSES


def install_plugins(api: Api) -> None:
    """Add the hooks; before any other hook of pods, because quotas count what the others have made of a pod."""
    api.add_admission(PODS, limits.pod_admission(api))
    api.add_admission(PODS, priorities.pod_admission(api))
    api.add_admission(PODS, runtimeclasses.pod_admission(api))
    api.add_admission(PODS, quotas.pod_admission(api))
    api.add_admission(PERSISTENT_VOLUME_CLAIMS, limits.claim_admission(api))
    api.add_admission(PRIORITY_CLASSES, priorities.class_admission(api))
