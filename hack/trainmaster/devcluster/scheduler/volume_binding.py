"""The claims of a pod: it gets no node before those of volumes exist and are bound, and none with claims of devices."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.runtime.jsontree import JsonObject

_NO_DEVICES = "cannot allocate all claims: the embedded cluster has no devices; use a cluster with a driver for them"
_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


def claims_problem(api: Api, pod: JsonObject) -> str:
    """Return why the claims of a pod keep it from any node, in the words of kube-scheduler; empty if they do not."""
    if pod["spec"].get("resourceClaims"):
        return _NO_DEVICES
    unbound = False
    for name in _claim_names(pod):
        record = api.store.get(ObjectKey(PERSISTENT_VOLUME_CLAIMS, pod["metadata"]["namespace"], name))
        if record is None:
            return f'persistentvolumeclaim "{name}" not found'
        if is_terminating(record.object):
            return f'persistentvolumeclaim "{name}" is being deleted'
        unbound |= (record.object.get("status") or {}).get("phase") != "Bound"
    return _UNBOUND if unbound else ""


def _claim_names(pod: JsonObject) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            yield claim["claimName"]
