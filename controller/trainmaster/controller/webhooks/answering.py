"""Answering: what each webhook says about a question. Pure: it reads caches, and writes nothing (H-6).

Guarantees:
- H-6: a dry run is a question like any other.
- H-7: asked twice about its own result, the defaulter changes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.resources import Resource
from trainmaster.controller.kube.storing import Store
from trainmaster.controller.reconciling.trainjobs.observing import KindKey, StoreFacts
from trainmaster.controller.webhooks.reviews import ALLOWED, Answer, Question, difference, failed
from trainmaster.runtime.admission import Verdict, default_trainjob, validate_runtime, validate_trainjob
from trainmaster.runtime.admission.decoding import undecodable
from trainmaster.runtime.framework import Framework

Handler = Callable[[Question], Answer]

MUTATE_TRAINJOB: Final = "/mutate-trainer-kubeflow-org-v1alpha1-trainjob"
VALIDATE_TRAINJOB: Final = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"
VALIDATE_TRAINING_RUNTIME: Final = "/validate-trainer-kubeflow-org-v1alpha1-trainingruntime"
VALIDATE_CLUSTER_TRAINING_RUNTIME: Final = "/validate-trainer-kubeflow-org-v1alpha1-clustertrainingruntime"


class Admission:
    """The webhooks of Trainer.

    Args:
        framework: The plugins, which have a say about TrainJobs.
        stores: The caches by kind: what is known of the cluster.
        clock: The time, for that of runtime patches.
    """

    def __init__(self, framework: Framework, stores: Mapping[KindKey, tuple[Resource, Store]], *, clock: Clock) -> None:
        self._framework = framework
        self._stores = stores
        self._clock = clock

    def handlers(self) -> Mapping[str, Handler]:
        """All webhooks by path."""
        return {
            MUTATE_TRAINJOB: self.default_trainjob,
            VALIDATE_TRAINJOB: self.validate_trainjob,
            VALIDATE_TRAINING_RUNTIME: self.validate_runtime,
            VALIDATE_CLUSTER_TRAINING_RUNTIME: self.validate_runtime,
        }

    def default_trainjob(self, question: Question) -> Answer:
        """Fill in the times of runtime patches."""
        obj = _written(question)
        if obj is None:
            return ALLOWED
        mismatch = undecodable(obj)
        if mismatch is not None:
            return failed(400, mismatch)
        defaulted = default_trainjob(obj, _stored(question), now=self._clock.now())
        return Answer(allowed=True, patch=list(difference(obj, defaulted)))

    def validate_trainjob(self, question: Question) -> Answer:
        """Judge a TrainJob."""
        obj = _written(question)
        if obj is None:
            return ALLOWED
        facts = StoreFacts(self._stores)
        return _answer(validate_trainjob(obj, _stored(question), framework=self._framework, facts=facts))

    def validate_runtime(self, question: Question) -> Answer:
        """Judge a runtime of either kind."""
        obj = _written(question)
        return ALLOWED if obj is None else _answer(validate_runtime(obj, _stored(question)))


def _written(question: Question) -> dict[str, object] | None:
    """The object that is created or updated; nothing else is any concern of ours."""
    return question.object if question.operation in ("CREATE", "UPDATE") else None


def _stored(question: Question) -> dict[str, object] | None:
    return question.old if question.operation == "UPDATE" else None


def _answer(verdict: Verdict) -> Answer:
    if verdict.admitted:
        return Answer(allowed=True, warnings=verdict.warnings)
    return Answer(allowed=False, message=verdict.message, warnings=verdict.warnings)
