"""The plugins together, in the order in which a real API server runs them."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.admission.plugins import limitranger, priority, runtimeclass
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS, PODS, PRIORITY_CLASSES


def register_plugins(api: Api) -> None:
    """Add the hooks."""
    api.add_admission(PODS, limitranger.pod_admission(api))
    api.add_admission(PODS, priority.pod_admission(api))
    api.add_admission(PODS, runtimeclass.pod_admission(api))
    api.add_admission(PERSISTENT_VOLUME_CLAIMS, limitranger.claim_admission(api))
    api.add_admission(PRIORITY_CLASSES, priority.class_admission(api))
