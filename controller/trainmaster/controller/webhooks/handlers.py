"""Answering: what each webhook says about a question. It reads, from caches if it can, and writes nothing (H-6).

Guarantees:
- H-6: a dry run is a question like any other.
- H-7: asked twice about its own result, the defaulter changes nothing more.
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
from trainmaster.controller.webhooks.review import ALLOWED, Answer, Question, difference, failed
from trainmaster.runtime.api import ApiTypeError, parse_trainjob
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.validation import ValidationResult, default_trainjob, validate_runtime, validate_trainjob
from trainmaster.runtime.validation.unmarshal import unmarshal_type_error

log = structlog.get_logger(__name__)

Handler = Callable[[Question], Awaitable[Answer]]

ASKING_TIMEOUT: Final = 3.0
"""Seconds for a question of our own: the API server gives up on ours after 10."""

MUTATE_TRAINJOB: Final = "/mutate-trainer-kubeflow-org-v1alpha1-trainjob"
VALIDATE_TRAINJOB: Final = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
VALIDATE_TRAINING_RUNTIME: Final = "/validate-trainer-kubeflow-org-v1alpha1-trainingruntime"
VALIDATE_CLUSTER_TRAINING_RUNTIME: Final = "/validate-trainer-kubeflow-org-v1alpha1-clustertrainingruntime"


class Admission:
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

    async def default_trainjob(self, question: Question) -> Answer:
        """Fill in the times of runtime patches."""
        obj = _written(question)
        if obj is None:
            return ALLOWED
        mismatch = unmarshal_type_error(obj)
        if mismatch is not None:
            return failed(400, mismatch)
        defaulted = default_trainjob(obj, _stored(question), now=self._clock.now())
        return Answer(allowed=True, patch=list(difference(obj, defaulted)))

    async def validate_trainjob(self, question: Question) -> Answer:
        """Judge a TrainJob."""
        obj = _written(question)
        if obj is None:
            return ALLOWED
        old = _stored(question)
        listers = StoreListers(self._stores)
        if old is None:
            listers = await self._with_live_runtime(obj, listers)
        return _answer(validate_trainjob(obj, old, framework=self._framework, listers=listers))

    async def _with_live_runtime(self, obj: JsonObject, listers: StoreListers) -> StoreListers:
        """Look twice for the runtime of a new TrainJob: `kubectl apply` of both in a row leaves no time for a watch."""
        try:
            async with self._clock.timeout(ASKING_TIMEOUT):
                return await with_live_runtime(parse_trainjob(obj), listers, self._reader)
        except ApiTypeError:
            return listers
        except (KubeError, TimeoutError) as error:
            log.warning("a runtime that is not cached could not be asked for", error=str(error) or "timed out")
            return listers

    async def validate_runtime(self, question: Question) -> Answer:
        """Judge a runtime of either kind."""
        obj = _written(question)
        return ALLOWED if obj is None else _answer(validate_runtime(obj, _stored(question)))


def _written(question: Question) -> JsonObject | None:
    """The object that is created or updated; nothing else is any concern of ours."""
    return question.object if question.operation in ("CREATE", "UPDATE") else None


def _stored(question: Question) -> JsonObject | None:
    return question.old if question.operation == "UPDATE" else None


def _answer(result: ValidationResult) -> Answer:
    if result.allowed:
        return Answer(allowed=True, warnings=result.warnings)
    return Answer(allowed=False, message=result.message, warnings=result.warnings)
