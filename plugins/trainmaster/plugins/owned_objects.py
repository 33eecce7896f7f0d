"""Owned objects: the ConfigMaps and Secrets that the pods of a workload mount.

- A Secret is made once, from fresh randomness, and is immutable: a key that changed under running pods would part them.
  Nobody reads it back. That it exists is known from its metadata, so no key is ever cached.
- A ConfigMap follows the TrainJob like the JobSet does: once the workload runs, what its pods were started with stays,
  since a pod that starts again has to find the same as the others.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND
from trainmaster.runtime.extension import ApplyWhen, Desired
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.watches import Watch

WATCHES: Iterable[Watch] = (
    Watch("v1", "ConfigMap", "configmaps", writes=True),
    Watch("v1", "Secret", "secrets", writes=True, metadata_only=True),
)
"""The kinds that are built here; a change enqueues the TrainJob that owns the object."""


def config_map(name: str, data: Mapping[str, str], job: TrainJob, listers: Listers) -> Desired:
    """Build a ConfigMap that is brought up to date until the workload runs."""
    obj: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)}
    return Desired(obj, ApplyWhen.MISSING if workload_runs(job, listers) else ApplyWhen.ALWAYS)


def secret(
    name: str, make: Callable[[], Mapping[str, bytes]], job: TrainJob, listers: Listers, *, secret_type: str
) -> Desired:
    """Build a Secret that is never changed; its data is made only if it does not exist yet."""
    obj: JsonObject = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": secret_type,
        "immutable": True,
    }
    if listers.get("v1", "Secret", job.metadata.namespace, name) is None:
        obj["data"] = {key: b64encode(value).decode() for key, value in make().items()}
    return Desired(obj, ApplyWhen.MISSING)


def workload_runs(job: TrainJob, listers: Listers) -> bool:
    """Return whether the JobSet is left alone as well. Suspending stops it, and it is resumed with the latest."""
    jobset = listers.get(JOBSET_API_VERSION, JOBSET_KIND, job.metadata.namespace, job.metadata.name)
    if jobset is None or not is_controlled_by(jobset, job) or job.spec.suspend:
        return False
    return not jobset["spec"].get("suspend", False)
