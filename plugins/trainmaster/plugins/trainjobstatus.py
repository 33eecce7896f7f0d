"""TrainJobStatus: what a trainer needs to report its progress to the manager (KEP-2779, alpha).

Every container of the trainer gets the URL of the status server, and finds a token and the authority of the server's
certificate in a volume. The token is good for the status of this one TrainJob and for nothing else.

- The authority comes to the namespace in a ConfigMap, which follows the manager's as long as the TrainJob is not
  finished: also for pods that run, so that they keep reporting when the authority is renewed.
- Without an authority nobody could trust the server. A TrainJob that would need it then waits, with this as the reason;
  one that has its ConfigMap already goes on with what is in there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from trainmaster.runtime.api.constants import (
    STATUS_AUTHORITY_ENV,
    STATUS_AUTHORITY_KEY,
    STATUS_MOUNT_PATH,
    STATUS_TOKEN_ENV,
    STATUS_TOKEN_KEY,
    STATUS_TOKEN_SECONDS,
    STATUS_URL_ENV,
    STATUS_VOLUME,
    TRAIN_JOB_STATUS_GATE,
    status_audience,
    status_config_map_name,
    status_path,
)
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework.interface import Desired, NotReady
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.podspec import env_value, upsert_env, upsert_volume_mounts, upsert_volumes

_WATCHES: Final = (Watch("v1", "ConfigMap", "configmaps", writes=True),)


class TrainJobStatus:
    """Lets trainers report progress.

    Args:
        server: The URL of the status server as pods reach it, without a path.
        authority: Returns the certificates that pods are to trust, in PEM; None while there are none.
    """

    name = "trainjobstatus"
    feature_gate = TRAIN_JOB_STATUS_GATE

    def __init__(self, *, server: str, authority: Callable[[], str | None]) -> None:
        if not server.startswith("https://"):
            raise ValueError(f"server must be an https:// URL, not {server!r}: a token is sent there")
        if not callable(authority):
            raise TypeError(f"authority must be a function that returns certificates, not {authority!r}")
        self._server = server.rstrip("/")
        self._authority = authority

    def watch_extension(self) -> Iterable[Watch]:
        """The ConfigMaps with the authority."""
        return _WATCHES

    def enforce_pod_spec(self, info: Info, job: TrainJob) -> None:
        """Give the trainer its variables, the token and the authority."""
        trainer = info.trainer
        if trainer is None:
            return
        url = f"{self._server}{status_path(job.metadata.namespace, job.metadata.name)}"
        upsert_volumes(trainer.pod_spec, [_volume(job)])
        for container in trainer.pod_spec.get("containers") or ():
            upsert_env(
                container,
                (
                    env_value(STATUS_URL_ENV, url),
                    env_value(STATUS_AUTHORITY_ENV, f"{STATUS_MOUNT_PATH}/{STATUS_AUTHORITY_KEY}"),
                    env_value(STATUS_TOKEN_ENV, f"{STATUS_MOUNT_PATH}/{STATUS_TOKEN_KEY}"),
                ),
            )
            upsert_volume_mounts(container, [{"name": STATUS_VOLUME, "mountPath": STATUS_MOUNT_PATH, "readOnly": True}])

    def build(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[Desired]:
        """Return the ConfigMap with the authority."""
        if info.trainer is None:
            return
        name = status_config_map_name(job.metadata.name)
        authority = self._authority()
        if authority is None:
            present = listers.get("v1", "ConfigMap", job.metadata.namespace, name)
            if present is not None and is_controlled_by(present, job):
                return
            raise NotReady(
                "failed to find status server ca.crt: without it the trainer could not trust the server to which it "
                "reports progress; an administrator has to put the authority that signs the webhook certificate into "
                "ca.crt beside it, or to switch the feature gate TrainJobStatus off"
            )
        data = {STATUS_AUTHORITY_KEY: authority}
        yield Desired({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


def _volume(job: TrainJob) -> JsonObject:
    namespace, name = job.metadata.namespace, job.metadata.name
    token = {
        "audience": status_audience(namespace, name),
        "expirationSeconds": STATUS_TOKEN_SECONDS,
        "path": STATUS_TOKEN_KEY,
    }
    authority = {
        "name": status_config_map_name(name),
        "items": [{"key": STATUS_AUTHORITY_KEY, "path": STATUS_AUTHORITY_KEY}],
    }
    return {
        "name": STATUS_VOLUME,
        "projected": {"sources": [{"serviceAccountToken": token}, {"configMap": authority}]},
    }
