"""What each webhook decides. Handlers read, from caches if they can, and write nothing (H-6).

Guarantees:
- H-6: a dry run is a request like any other.
- H-7: called again with its own result, the defaulter changes nothing more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.trainjobs.observe import (
    APIReader,
    GroupVersionKind,
    StoreListers,
    with_live_runtime,
)
from trainmaster.controller.webhooks.review import ALLOWED, AdmissionRequest, AdmissionResponse, create_patch, errored
from trainmaster.runtime.api import ApiTypeError, parse_trainjob
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.validation import ValidationResult, default_trainjob, validate_runtime, validate_trainjob
from trainmaster.runtime.validation.unmarshal import unmarshal_type_error

log = structlog.get_logger(__name__)

Handler = Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]

LOOKUP_TIMEOUT: Final = 3.0
"""Seconds for a request of our own to the API server, which gives up on us after 10."""

MUTATE_TRAINJOB: Final = "/mutate-trainer-kubeflow-org-v1alpha1-trainjob"
VALIDATE_TRAINJOB: Final = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
VALIDATE_TRAINING_RUNTIME: Final = "/validate-trainer-kubeflow-org-v1alpha1-trainingruntime"
VALIDATE_CLUSTER_TRAINING_RUNTIME: Final = "/validate-trainer-kubeflow-org-v1alpha1-clustertrainingruntime"


class AdmissionHandlers:
    """The webhooks of Trainer.

    Args:
        framework: The plugins, which have a say about TrainJobs.
        stores: The caches by kind: what is known of the cluster.
        reader: Who is asked for a runtime that the caches do not hold.
        clock: The time, for that of runtime patches.
    """

    def __init__(
        self,
        framework: Framework,
        stores: Mapping[GroupVersionKind, tuple[Resource, Store]],
        reader: APIReader,
        *,
        clock: Clock,
    ) -> None:
        self._framework = framework
        self._stores = stores
        self._reader = reader
        self._clock = clock

    def handlers(self) -> Mapping[str, Handler]:
        """All webhooks by path."""
        return {
            MUTATE_TRAINJOB: self.default_trainjob,
            VALIDATE_TRAINJOB: self.validate_trainjob,
            VALIDATE_TRAINING_RUNTIME: self.validate_runtime,
            VALIDATE_CLUSTER_TRAINING_RUNTIME: self.validate_runtime,
        }

    async def default_trainjob(self, request: AdmissionRequest) -> AdmissionResponse:
        """Fill in the times of runtime patches."""
        obj = _admitted_object(request)
        if obj is None:
            return ALLOWED
        mismatch = unmarshal_type_error(obj)
        if mismatch is not None:
            return errored(400, mismatch)
        defaulted = default_trainjob(obj, _stored_object(request), now=self._clock.now())
        return AdmissionResponse(allowed=True, patch=list(create_patch(obj, defaulted)))

    async def validate_trainjob(self, request: AdmissionRequest) -> AdmissionResponse:
        """Judge a TrainJob."""
        obj = _admitted_object(request)
        if obj is None:
            return ALLOWED
        old = _stored_object(request)
        listers = StoreListers(self._stores)
        if old is None:
            listers = await self._with_live_runtime(obj, listers)
        return _response(validate_trainjob(obj, old, framework=self._framework, listers=listers))

    async def _with_live_runtime(self, obj: JsonObject, listers: StoreListers) -> StoreListers:
        """Look twice for the runtime of a new TrainJob: `kubectl apply` of both in a row leaves no time for a watch."""
        try:
            async with self._clock.timeout(LOOKUP_TIMEOUT):
                return await with_live_runtime(parse_trainjob(obj), listers, self._reader)
        except ApiTypeError:
            return listers
        except (KubeError, TimeoutError) as error:
            log.warning("a runtime that is not cached could not be asked for", error=str(error) or "timed out")
            return listers

    async def validate_runtime(self, request: AdmissionRequest) -> AdmissionResponse:
        """Judge a runtime of either kind."""
        obj = _admitted_object(request)
        return ALLOWED if obj is None else _response(validate_runtime(obj, _stored_object(request)))


def _admitted_object(request: AdmissionRequest) -> JsonObject | None:
    """The object that is created or updated; nothing else is any concern of ours."""
    return request.object if request.operation in ("CREATE", "UPDATE") else None


def _stored_object(request: AdmissionRequest) -> JsonObject | None:
    return request.old_object if request.operation == "UPDATE" else None


def _response(result: ValidationResult) -> AdmissionResponse:
    if result.allowed:
        return AdmissionResponse(allowed=True, warnings=result.warnings)
    return AdmissionResponse(allowed=False, message=result.message, warnings=result.warnings)
