"""The plugins together, in the order in which a real API server runs them."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.admission.plugins import limitranger, priority, resourcequota, runtimeclass
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS, PODS, PRIORITY_CLASSES


def install_plugins(api: Api) -> None:
    """Add the hooks; before any other hook of pods, because quotas count what the others have made of a pod."""
    api.add_admission(PODS, limitranger.pod_admission(api))
    api.add_admission(PODS, priority.pod_admission(api))
    api.add_admission(PODS, runtimeclass.pod_admission(api))
    api.add_admission(PODS, resourcequota.pod_admission(api))
    api.add_admission(PERSISTENT_VOLUME_CLAIMS, limitranger.claim_admission(api))
    api.add_admission(PRIORITY_CLASSES, priority.class_admission(api))
