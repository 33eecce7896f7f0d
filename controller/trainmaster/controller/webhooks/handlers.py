"""What each webhook decides. Handlers read, from caches if they can, and write nothing (H-6).

Guarantees:
- H-6: a dry run is a request like any other.
- H-7: called again with its own result, the defaulter changes nothing more.
- H-17: a runtime that is not cached is asked for within limits; that there was no time for it is no reason to call it
  missing. Neither is that it may not be read.
- Who serves named namespaces has no say about any other, nor about what has none: it admits that as it is, because
  another installation may be in charge, whose users this one must not get in the way of.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Final, ParamSpec, TypeVar

import orjson
import structlog

from trainmaster.controller.job_fields import mapping
from trainmaster.controller.kube.cache.store import StoreReader
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.trainjobs.observe import (
    CONFIG_MAP,
    APIReader,
    RuntimeDenied,
    lacks_runtime,
    with_live_runtime,
)
from trainmaster.controller.reconciling.writes import GroupVersionKind
from trainmaster.controller.resources import RUNTIMES, TRAINJOBS
from trainmaster.controller.webhooks.review import (
    ALLOWED,
    AdmissionRequest,
    AdmissionResponse,
    create_patch,
    errored,
    overloaded,
)
from trainmaster.controller.webhooks.workers import Workers
from trainmaster.runtime.api.constants import CLUSTER_TRAINING_RUNTIME_KIND, snapshot_name
from trainmaster.runtime.api.decoding import ApiTypeError, parse_trainjob
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.validation import validate_job
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.validation import ValidationResult, default_trainjob, validate_runtime, validate_trainjob
from trainmaster.runtime.validation.runtime_ref import of_other_kind
from trainmaster.runtime.validation.unmarshal import unmarshal_type_error

log = structlog.get_logger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

Handler = Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]

_Judge = Callable[[JsonObject, JsonObject | None, int], Awaitable[AdmissionResponse]]
"""Judges an object, with the stored one if it is updated, in a review of so many bytes."""

LOOKUP_TIMEOUT: Final = 3.0
"""Seconds for a request of our own to the API server, which gives up on us after 10."""

MAX_LOOKUPS: Final = 8
"""How many such requests are under way (P-32); whoever waits for a place does so within the timeout."""

RETRY_WHEN_BUSY: Final = 5
"""Seconds after which to try again when the API server does not answer in time."""

_SCALE: Final = "Scale"
"""The kind of what is written by the subresource `scale`."""

MUTATE_TRAINJOB: Final = "/mutate-trainer-kubeflow-org-v1alpha1-trainjob"
VALIDATE_TRAINJOB: Final = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
VALIDATE_TRAINING_RUNTIME: Final = "/validate-trainer-kubeflow-org-v1alpha1-trainingruntime"
VALIDATE_CLUSTER_TRAINING_RUNTIME: Final = "/validate-trainer-kubeflow-org-v1alpha1-clustertrainingruntime"


def validate_job_path(kind: JobKind) -> str:
    """Return the path of the webhook for a kind of jobs, by the rule of controller-runtime."""
    return f"/validate-{kind.group.replace('.', '-')}-{kind.version}-{kind.kind.lower()}"


class AdmissionHandlers:
    """The webhooks of Trainer, and those of the Training Operator.

    Args:
        stores: The caches by kind: what is known of the cluster.
        reader: Who is asked for a runtime that the caches do not hold; a client that nobody else waits for.
        job_kinds: The kinds of jobs of `kubeflow.org/v1`; to judge them takes nothing but their objects.
        namespaces: Those that are served; empty: all of them.
    """

    def __init__(
        self,
        framework: Framework,
        stores: Mapping[GroupVersionKind, tuple[Resource, StoreReader]],
        reader: APIReader,
        *,
        workloads: Collection[GroupVersionKind] = (),
        job_kinds: Sequence[JobKind] = (),
        namespaces: frozenset[str] = frozenset(),
        workers: Workers,
        clock: Clock,
    ) -> None:
        self._framework = framework
        self._stores = stores
        self._workloads = workloads
        self._reader = reader
        self._job_kinds = job_kinds
        self._namespaces = namespaces
        self._told_of_others = False
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)
        self._workers = workers
        self._clock = clock

    def handlers(self) -> Mapping[str, Handler]:
        """All webhooks by path."""
        judges: dict[str, _Judge] = {
            MUTATE_TRAINJOB: self._default_trainjob,
            VALIDATE_TRAINJOB: self._validate_trainjob,
            VALIDATE_TRAINING_RUNTIME: self._validate_runtime,
            VALIDATE_CLUSTER_TRAINING_RUNTIME: self._validate_runtime,
            **{validate_job_path(kind): partial(self._validate_job, kind) for kind in self._job_kinds},
        }
        return {path: self._handler(judge) for path, judge in judges.items()}

    def _handler(self, judge: _Judge) -> Handler:
        """Have judged what is created or updated in a namespace that is served; nothing else is any concern of ours."""

        async def handle(request: AdmissionRequest) -> AdmissionResponse:
            if self._namespaces and request.namespace not in self._namespaces:
                # Selectors of namespaces let through what has none.
                if request.namespace and not self._told_of_others:
                    self._told_of_others = True
                    log.warning(
                        "asked about an object of a namespace that is not served here, and admitted it unseen",
                        namespace=request.namespace,
                        hint="give the webhook configuration a namespaceSelector for the namespaces of watchNamespaces",
                    )
                return ALLOWED
            if request.object is None or request.operation not in ("CREATE", "UPDATE"):
                return ALLOWED
            old = request.old_object if request.operation == "UPDATE" else None
            return await judge(request.object, old, request.size)

        return handle

    async def _default_trainjob(self, obj: JsonObject, old: JsonObject | None, size: int) -> AdmissionResponse:
        """Fill in the times of runtime patches."""
        return await self._judge(size, _default, obj, old, self._clock.now())

    async def _validate_trainjob(self, obj: JsonObject, old: JsonObject | None, size: int) -> AdmissionResponse:
        if obj.get("kind") == _SCALE:
            found = await self._scaled(obj)
            if isinstance(found, AdmissionResponse):
                return found
            old, obj = found
            size += len(orjson.dumps(old))
        listers = StoreListers(self._stores, workloads=self._workloads)
        if old is None:
            job = await self._judge(size, _lacking_runtime, obj, listers)
            if job is not None:
                try:
                    listers = await self._with_live_runtime(job, listers)
                except TimeoutError:
                    log.warning("a runtime that is not cached was not answered for in time", seconds=LOOKUP_TIMEOUT)
                    return overloaded(RETRY_WHEN_BUSY)
                except RuntimeDenied as error:
                    return AdmissionResponse(allowed=False, message=str(error))
        size += _size_of_runtime(obj, listers)
        return await self._ask_plugins(size, validate_trainjob, obj, old, framework=self._framework, listers=listers)

    async def _scaled(self, scale: JsonObject) -> tuple[JsonObject, JsonObject] | AdmissionResponse:
        """Return a TrainJob before and after it is scaled, or the response if it cannot be read.

        The server is asked, since the cache may not have the TrainJob yet; Scales are rare.
        """
        metadata, replicas = mapping(scale.get("metadata")), mapping(scale.get("spec")).get("replicas", 0)
        try:
            async with self._lookup():
                job = await self._reader.get(TRAINJOBS, str(metadata.get("namespace")), str(metadata.get("name")))
        except TimeoutError:
            return overloaded(RETRY_WHEN_BUSY)
        except KubeError as error:
            return errored(500, f"the TrainJob cannot be read: {error}")
        spec = mapping(job.get("spec"))
        # A job without a trainer counts as one without a number: adding a trainer is admitted, and changes nothing.
        trainer = mapping(spec.get("trainer"))
        before = {**job, "spec": {**spec, "trainer": trainer}}
        after = {**job, "spec": {**spec, "trainer": {**trainer, "numNodes": replicas}}}
        return before, after

    async def _validate_runtime(self, obj: JsonObject, old: JsonObject | None, size: int) -> AdmissionResponse:
        return await self._ask_plugins(size, validate_runtime, obj, old, framework=self._framework)

    async def _validate_job(
        self, kind: JobKind, obj: JsonObject, old: JsonObject | None, size: int
    ) -> AdmissionResponse:
        return _response(await self._judge(size, validate_job, kind, obj, old))

    async def _judge(self, size: int, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function where so many bytes are judged."""
        return await self._workers.of(size).run(size, function, *args, **kwargs)

    async def _ask_plugins(
        self, size: int, validate: Callable[P, ValidationResult], /, *args: P.args, **kwargs: P.kwargs
    ) -> AdmissionResponse:
        """Validate where plugins may have a say."""
        try:
            return _response(await self._workers.of(size).run_plugins(size, validate, *args, **kwargs))
        except PluginFailed as error:
            return _response(ValidationResult([FieldError("spec", str(error), "InternalError")]))

    @asynccontextmanager
    async def _lookup(self) -> AsyncIterator[None]:
        """Wait for a place among those who ask the API server, and time both."""
        async with self._clock.timeout(LOOKUP_TIMEOUT), self._lookups:
            yield

    async def _with_live_runtime(self, job: TrainJob, listers: StoreListers) -> StoreListers:
        """Look twice for the runtime of a new TrainJob: `kubectl apply` of both in a row leaves no time for a watch.

        Raises:
            TimeoutError: The API server, or those who asked it before, took too long.
            RuntimeDenied: It may not be read.
        """
        try:
            async with self._lookup():
                listers = await with_live_runtime(job, listers, self._reader)
                if lacks_runtime(job, listers):
                    with suppress(RuntimeDenied):  # the refusal points at it, if it can be seen
                        listers = await with_live_runtime(of_other_kind(job), listers, self._reader)
                return listers
        except KubeError as error:
            log.warning("a runtime that is not cached could not be asked for", error=str(error))
            return listers


def _default(obj: JsonObject, old: JsonObject | None, now: datetime) -> AdmissionResponse:
    mismatch = unmarshal_type_error(obj)
    if mismatch is not None:
        return errored(400, mismatch)
    return AdmissionResponse(allowed=True, patch=list(create_patch(obj, default_trainjob(obj, old, now=now))))


def _lacking_runtime(obj: JsonObject, listers: StoreListers) -> TrainJob | None:
    """Return a TrainJob whose runtime the caches do not hold; None for any other."""
    try:
        job = parse_trainjob(obj)
        return job if lacks_runtime(job, listers) else None
    except ApiTypeError:
        return None


def _size_of_runtime(obj: JsonObject, listers: StoreListers) -> int:
    """Return how many bytes the caches have of what a TrainJob is made from: its runtime, and the snapshot of that."""
    metadata, reference = mapping(obj.get("metadata")), mapping(mapping(obj.get("spec")).get("runtimeRef"))
    resource = RUNTIMES.get(str(reference.get("kind", CLUSTER_TRAINING_RUNTIME_KIND)))
    size, namespace = 0, str(metadata.get("namespace"))
    if resource is not None:
        owner = namespace if resource.namespaced else None
        size += listers.size(resource.api_version, resource.kind, owner, str(reference.get("name")))
    return size + listers.size(*CONFIG_MAP, namespace, snapshot_name(str(metadata.get("name"))))


def _response(result: ValidationResult) -> AdmissionResponse:
    if result.allowed:
        return AdmissionResponse(allowed=True, warnings=result.warnings)
    return AdmissionResponse(allowed=False, message=result.message, warnings=result.warnings)
