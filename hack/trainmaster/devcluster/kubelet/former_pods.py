"""What the pods of a job have printed, kept after they are deleted, until the job is deleted.

- The job is what owns a pod in the end: a TrainJob, another job, a JobSet. Of pods without an owner, and of those of a
  Deployment, nothing is kept.
- A deleted pod leaves its last object and the logs of all runs of its containers; `pods/NAME/log` reads them on.
- The logs of the deleted pods of one job take no more than a limit: those that ended first go first.
- Nothing is kept of a job that is deleted itself: it goes with its last pods, or, if it has none, within a minute.

    <root>/former/<uid of the job>/job.json                    [group, resource, namespace, name]
    <root>/former/<uid of the job>/<uid of the pod>/pod.json, logs/
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from aiohttp import web

from trainmaster.devcluster.apiserver.filters.authorization import require_administrator
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import PODS, GroupResource
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.controllers.indexer import find
from trainmaster.devcluster.controllers.objects import controller_of, is_terminating
from trainmaster.devcluster.kubelet.directories import KEPT_LOGS, PodFiles, RootDirectory, drop_oldest_logs
from trainmaster.runtime.jsontree import JsonObject

_POD: Final = "pod.json"
_JOB: Final = "job.json"


class _Job(NamedTuple):
    """What owns a pod in the end."""

    key: ObjectKey
    uid: str


class FormerPods:
    """The pods of jobs that were on this node, and what is kept of those that are deleted."""

    def __init__(self, api: Api, root: RootDirectory, *, limit: int = KEPT_LOGS) -> None:
        self._api = api
        self._root = root
        self._limit = limit
        self._seen: dict[str, tuple[JsonObject, _Job]] = {}
        """The last object of each pod, and its job, by uid of the pod, until its files are moved or removed."""

    def observe(self, pod: JsonObject) -> None:
        """Take note of a pod; of its job once, since what is in between may be deleted before the pod."""
        uid = pod["metadata"]["uid"]
        job = self._seen[uid][1] if uid in self._seen else self._job_of(pod)
        if job is not None:
            self._seen[uid] = (pod, job)

    def remover(self, uid: str) -> Callable[[], None]:
        """Return what removes the files of a deleted pod, in a thread, except for those that are kept."""
        pod, job = self._seen.get(uid, (None, None))
        keeps = job is not None and self._exists(job)

        def remove() -> None:
            try:
                if pod is not None and job is not None:
                    if keeps:
                        self._keep(pod, job)
                    else:
                        self._root.remove_former(self._root.former / job.uid)
            finally:
                self._seen.pop(uid, None)
                self._root.remove_pod(uid)

        return remove

    def remove_orphans(self) -> None:
        """Remove what is kept of jobs that are deleted."""
        for path in self._root.former.glob(f"*/{_JOB}"):
            with contextlib.suppress(OSError, ValueError):  # being written or removed
                group, resource, namespace, name = json.loads(path.read_bytes())
                key = ObjectKey(GroupResource(group, resource), namespace, name)
                if not self._exists(_Job(key, path.parent.name)):
                    self._root.remove_former(path.parent)

    def find(self, namespace: str, name: str, uid: str = "") -> JsonObject | None:
        """Return the newest deleted pod of a name, or the one that has a uid."""
        found = [
            pod
            for pod in self._deleted("*")
            if (pod["metadata"]["namespace"], pod["metadata"]["name"]) == (namespace, name)
            and uid in {"", pod["metadata"]["uid"]}
        ]
        return max(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def files(self, uid: str) -> PodFiles:
        """Return the directories of a pod, deleted or not."""
        kept = next(self._root.former.glob(f"*/{uid}/{_POD}"), None)
        return self._root.pod(uid) if kept is None else PodFiles(kept.parent, kept.parent)

    def routes(self) -> list[web.RouteDef]:
        """Return the route that tells of the logs of a job, for administrators.

        GET /trainmaster.dev/logs/UID gives `pods`, those that are deleted, and `logs`, also of those that are there:
        how many bytes the beginning of each log lacks, by uid of the pod, container, and run.
        """

        async def get_logs(request: web.Request) -> web.Response:
            require_administrator(request, "ask for the logs of deleted pods")
            uid = request.match_info["uid"]
            deleted = list(self._deleted(uid))
            uids = {pod["metadata"]["uid"] for pod in deleted}
            uids |= {each for each, (_, job) in self._seen.items() if job.uid == uid}
            return json_response({"pods": deleted, "logs": {each: self.files(each).dropped_bytes() for each in uids}})

        return [web.get("/trainmaster.dev/logs/{uid:[0-9a-f-]+}", get_logs)]

    def _deleted(self, job_uid: str) -> Iterator[JsonObject]:
        kept = set()
        for path in self._root.former.glob(f"{job_uid}/*/{_POD}"):
            with contextlib.suppress(OSError, ValueError):  # being written or removed
                pod: JsonObject = json.loads(path.read_bytes())
                kept.add(path.parent.name)
                yield pod
        for uid, (pod, job) in list(self._seen.items()):  # those whose files are about to be moved
            if job_uid in {"*", job.uid} and uid not in kept and self._stored(pod) is None:
                yield pod

    def _stored(self, pod: JsonObject) -> JsonObject | None:
        found = find(self._api, ObjectKey(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"]))
        return found if found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"] else None

    def _exists(self, job: _Job) -> bool:
        found = find(self._api, job.key)
        return found is not None and found["metadata"]["uid"] == job.uid and not is_terminating(found)

    def _job_of(self, pod: JsonObject) -> _Job | None:
        kinds = {(kind.group, kind.kind): kind.stored_as for kind in self._api.registry.kinds()}
        found, owner = None, controller_of(pod)
        while owner is not None and owner["kind"] != "ReplicaSet":
            resource = kinds.get((owner["apiVersion"].rpartition("/")[0], owner["kind"]))
            if resource is None:
                break
            key = ObjectKey(resource, pod["metadata"]["namespace"], owner["name"])
            obj = find(self._api, key)
            if obj is None or obj["metadata"]["uid"] != owner["uid"]:
                break
            found, owner = _Job(key, owner["uid"]), controller_of(obj)
        return found

    def _keep(self, pod: JsonObject, job: _Job) -> None:
        logs = self._root.pod(pod["metadata"]["uid"]).root / "logs"
        if not logs.is_dir():
            return
        kept = self._root.former / job.uid
        directory = kept / pod["metadata"]["uid"]
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (kept / _JOB).write_text(json.dumps([*job.key.resource, job.key.namespace, job.key.name]), encoding="utf-8")
        logs.rename(directory / "logs")
        (directory / _POD).write_text(json.dumps(pod), encoding="utf-8")
        drop_oldest_logs(kept, limit=self._limit)
