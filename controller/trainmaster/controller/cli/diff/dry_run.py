"""What a cluster would make of files, and the controller of the jobs in them, without changing anything.

- Every write is a dry run on the server, so that defaults, admission and the fields of others are its own. This takes
  the permissions of the write.
- A TrainJob whose runtime is new as well cannot be tried on the server, where webhooks miss the runtime; its defaults
  come from the schema.
- What the controller would do is decided by its own planning, from lists in place of its caches, and from the runtime
  that counts in the cluster: the snapshot of a TrainJob that exists, else the runtime as it would be once the files are
  applied.
- Pods and Services of jobs of `kubeflow.org/v1` are shown as the controller would send them: there may be thousands.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from trainmaster.controller.cli.cluster import reachable_cluster
from trainmaster.controller.cli.configured import UNKNOWN_AUTHORITY, load_jobs
from trainmaster.controller.cli.diff.live_listers import LiveListers, ObjectKey
from trainmaster.controller.cli.files.manifests import Manifest, apply_order, is_job, is_trainjob
from trainmaster.controller.cli.files.offline import GENERATED, UID, validate_schema
from trainmaster.controller.cli.responses import Rejected, RestMapper, error_lines, unknown_kind, write
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, Forbidden, NotFound, Unauthorized
from trainmaster.controller.kube.rest.resources import PODS, SERVICES, Resource
from trainmaster.controller.reconciling.event_handlers import OWNER_INDEX, owner_values, strip_foreign_objects
from trainmaster.controller.reconciling.jobs.objects import Plan
from trainmaster.controller.reconciling.jobs.observe import JobStores, OwnedKind
from trainmaster.controller.reconciling.jobs.observe import observe as observe_job
from trainmaster.controller.reconciling.jobs.plan import plan as plan_job
from trainmaster.controller.reconciling.jobs.replicas import RestartBackoff
from trainmaster.controller.reconciling.trainjobs.observe import observe
from trainmaster.controller.reconciling.trainjobs.plan import plan
from trainmaster.controller.reconciling.writes import Decision
from trainmaster.controller.resources import watched_resource
from trainmaster.runtime.api.constants import (
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME_KIND,
    FIELD_MANAGER,
    MANAGED_BY_TRAINER,
    POD_GROUP_KIND,
    TRAINING_RUNTIME_KIND,
)
from trainmaster.runtime.api.decoding import ApiTypeError, parse_trainjob
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL, MANAGED_BY_TRAINING_OPERATOR
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.podgroup import GangScheduler
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch
from trainmaster.runtime.validation.runtime_ref import unsupported_runtime
from trainmaster.runtime.version import __version__

_TRIES = 2
"""Of a request: somebody waits for the answer."""

_PERMISSION = "if a permission is missing: diff makes dry runs, which take those of the writes themselves"


async def plan_of(client: KubeClient, job: Job, gang: GangScheduler | None) -> Plan:
    """Decide what to write for a job that is as it would be once the files are applied.

    Raises:
        KubeError: What is there cannot be read.
    """
    watches = list(job.kind.watches())
    if gang is not None:
        watches.append(Watch(gang.api_version, POD_GROUP_KIND, "podgroups"))
    namespace, trim = job.namespace, strip_foreign_objects((job.kind.group, job.kind.kind))
    others = {
        (watch.api_version, watch.kind): OwnedKind(
            resource := watched_resource(watch),
            await _store(client, resource, namespace, label_selector=watch.label_selector, transform=trim),
            watch.creates_only,
        )
        for watch in watches
    }
    stores = JobStores(
        Store(),
        await _store(client, PODS, namespace, label_selector=JOB_NAME_LABEL),
        await _store(client, SERVICES, namespace, label_selector=JOB_NAME_LABEL),
        others,
    )
    return plan_job(observe_job(job, stores), gang, now=datetime.now(UTC), restarts=RestartBackoff(SystemClock()))


async def _store(
    client: KubeClient,
    resource: Resource,
    namespace: str,
    *,
    label_selector: str | None,
    transform: Callable[[JsonObject], JsonObject] = lambda whole: whole,
) -> Store:
    """Fill a store as an informer would."""
    store = Store()
    store.add_indexer(OWNER_INDEX, owner_values)
    try:
        listed = await client.list(resource, namespace, label_selector=label_selector)
    except NotFound:  # the kind is not served
        return store
    for item in listed["items"]:
        store.put(transform({"apiVersion": resource.api_version, "kind": resource.kind, **item}))
    return store


class _Refused(Exception):
    """The controller would not, or could not, do its work for an object; each argument is a reason."""


@dataclass(frozen=True, slots=True)
class ObjectDiff:
    """One object as it is, and as it would be."""

    live: JsonObject | None
    merged: JsonObject | None
    """None if it would be deleted."""


async def compare(
    arguments: argparse.Namespace, manifests: Sequence[Manifest], framework: Framework
) -> list[ObjectDiff]:
    """Connect to the cluster of a command line, and make a dry run there.

    Raises:
        Rejected: The cluster or the controller refuses.
        KubeError: The cluster cannot be asked.
    """
    kinds, gang = load_jobs(arguments) if any(map(is_job, manifests)) else ((), None)
    access = await reachable_cluster(arguments.kubeconfig)
    async with KubeClient(access, user_agent=f"trainmaster-diff/{__version__}", tries=_TRIES) as client:
        dry_run = DryRun(
            client,
            framework,
            namespace=arguments.namespace,
            field_manager=arguments.field_manager,
            job_kinds=kinds,
            gang=gang,
        )
        return await dry_run.run(manifests)


class DryRun:
    """One dry run of some manifests.

    `namespace` is that of objects that name none; None: that of the kubeconfig. `field_manager` applies the files.
    """

    def __init__(
        self,
        client: KubeClient,
        framework: Framework,
        *,
        namespace: str | None,
        field_manager: str,
        job_kinds: Sequence[JobKind] = (),
        gang: GangScheduler | None = None,
    ) -> None:
        self._client = client
        self._job_kinds = {(kind.api_version, kind.kind): kind for kind in job_kinds}
        self._gang = gang
        self._framework = framework
        self._namespace = namespace or client.config.namespace or "default"
        self._field_manager = field_manager
        self._rest_mapper = RestMapper(client)
        self._changed: dict[ObjectKey, JsonObject] = {}
        self._created: set[ObjectKey] = set()
        """The objects that are only in the files."""

    async def run(self, manifests: Sequence[Manifest]) -> list[ObjectDiff]:
        """Make dry runs of everything, in the order of dependence.

        Raises:
            Rejected: The cluster or the controller refuses.
        """
        diffs, jobs = list[ObjectDiff](), list[tuple[Manifest, JsonObject]]()
        for manifest in sorted(manifests, key=apply_order):
            live, merged = await self._diff_manifest(manifest)
            diffs.append(ObjectDiff(live, merged))
            jobs.append((manifest, merged))
        for manifest, merged in jobs:
            kind = self._job_kinds.get((manifest.api_version, manifest.kind))
            with _rejections(f"{manifest.place}: {manifest.title}"):
                if is_trainjob(manifest):
                    diffs += await self._reconciled(merged)
                elif kind is not None:
                    diffs += await self._reconciled_job(kind, merged)
        return diffs

    async def _diff_manifest(self, manifest: Manifest) -> tuple[JsonObject | None, JsonObject]:
        """Return what is there, and what would be."""
        with _rejections(f"{manifest.place}: {manifest.title}"):
            resource = await self._rest_mapper.resource(manifest.api_version, manifest.kind)
            if resource is None:
                raise Rejected([unknown_kind(manifest)])
            metadata = dict(manifest.object["metadata"])
            if resource.namespaced:
                metadata.setdefault("namespace", self._namespace)
            obj = {**manifest.object, "metadata": metadata}
            live = await self._live(resource, metadata)
            if live is None and is_trainjob(manifest) and _runtime_key(obj) in self._created:
                merged = _defaulted_offline(obj)
            else:
                merged, _ = await write(self._client, resource, obj, manager=self._field_manager, dry_run=True)
        key = (manifest.api_version, manifest.kind, metadata.get("namespace"), merged["metadata"]["name"])
        self._changed[key] = merged
        if live is None:
            self._created.add(key)
        return live, merged

    async def _reconciled(self, merged: JsonObject) -> list[ObjectDiff]:
        """Return what the controller would write for a TrainJob."""
        job = parse_trainjob(merged)
        if unsupported := unsupported_runtime(job.spec.runtime_ref):
            raise _Refused(f"unsupported runtime: {unsupported}")
        if job.spec.managed_by != MANAGED_BY_TRAINER:
            return []
        listers = LiveListers(self._client, self._rest_mapper, self._framework.watches(), self._changed)
        while True:
            observed = observe(job, merged, listers)
            planned = plan(observed, self._framework, fails=False, now=datetime.now(UTC))
            if not await listers.fetch():
                break
        return await self._applied(planned)

    async def _reconciled_job(self, kind: JobKind, merged: JsonObject) -> list[ObjectDiff]:
        """Return what the controller would write and delete for a job of `kubeflow.org/v1`."""
        job = parse_job(kind, merged)
        if job.run_policy.managed_by != MANAGED_BY_TRAINING_OPERATOR:
            return []
        planned = await plan_of(self._client, job, self._gang)
        diffs = await self._applied(planned)
        diffs += [ObjectDiff(None, creation.make()) for creation in planned.creates]
        return diffs + [ObjectDiff(obj, None) for obj in planned.deletes]

    async def _applied(self, planned: Decision) -> list[ObjectDiff]:
        if planned.problem is not None:
            raise _Refused(f"{planned.problem.reason}: {planned.problem.message}")
        diffs = []
        for obj in (each.object for each in planned.applies):
            resource = await self._rest_mapper.resource(obj["apiVersion"], obj["kind"])
            if resource is None:
                raise _Refused(f"it needs {obj['kind']} of {obj['apiVersion']}, which the cluster does not serve")
            live = await self._live(resource, obj["metadata"])
            complete = _with_live_authority(obj, live)
            merged, _ = await write(self._client, resource, complete, manager=FIELD_MANAGER, dry_run=True)
            diffs.append(ObjectDiff(live, merged))
        return diffs

    async def _live(self, resource: Resource, metadata: JsonObject) -> JsonObject | None:
        if not metadata.get("name"):
            return None
        try:
            namespace = metadata["namespace"] if resource.namespaced else None
            return await self._client.get(resource, namespace, metadata["name"])
        except NotFound:
            return None


def _with_live_authority(obj: JsonObject, live: JsonObject | None) -> JsonObject:
    """Put what the controller wrote in the place of an authority that it alone knows."""
    data, written = obj.get("data") or {}, (live or {}).get("data") or {}
    unknown = {key for key, value in data.items() if value == UNKNOWN_AUTHORITY} & written.keys()
    return {**obj, "data": {**data, **{key: written[key] for key in unknown}}} if unknown else obj


def _runtime_key(obj: JsonObject) -> ObjectKey:
    spec = obj.get("spec")
    reference = spec.get("runtimeRef") if isinstance(spec, dict) else None
    reference = reference if isinstance(reference, dict) else {}
    kind = str(reference.get("kind") or CLUSTER_TRAINING_RUNTIME_KIND)
    namespace = obj["metadata"]["namespace"] if kind == TRAINING_RUNTIME_KIND else None
    return API_VERSION, kind, namespace, str(reference.get("name"))


def _defaulted_offline(obj: JsonObject) -> JsonObject:
    """Return a TrainJob as a server would store it that knew its runtime; webhooks refuse it before."""
    metadata = obj["metadata"]
    name = metadata.get("name") or f"{metadata['generateName']}{GENERATED}"
    merged, errors = validate_schema({**obj, "metadata": {**metadata, "name": name, "uid": UID}})
    if wrong := [f"{error.path}: {error.message}" for error in errors if error.severity == "error"]:
        raise _Refused(*wrong)
    return merged


@contextmanager
def _rejections(what: str) -> Iterator[None]:
    try:
        yield
    except _Refused as error:
        raise Rejected(f"{what}: {line}" for line in error.args) from error
    except ApiTypeError as error:
        raise Rejected([f"{what}: it cannot be read: {'; '.join(error.problems)}"]) from error
    except Forbidden as error:
        raise Rejected([f"{what}: {error.message or error}; {_PERMISSION}"]) from error
    except Unauthorized:
        raise  # it is not about this object
    except ApiError as error:
        raise Rejected(f"{what}: {line}" for line in error_lines(error)) from error
