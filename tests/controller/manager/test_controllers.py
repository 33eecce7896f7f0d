"""Which controllers there are, and how the configuration sets their number of workers."""

from __future__ import annotations

from typing import Any, cast

import pytest
from support.informers import Script
from support.virtualtime import VirtualClock

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.configuration import Controller as ControllerSection
from trainmaster.controller.diagnosis.diagnosis import WORKERS
from trainmaster.controller.job_metrics.observer import TrainJobObserver
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.manager import controllers
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.metrics.trainjobs import TrainJobsMetrics
from trainmaster.runtime.framework import Framework, load_plugins


@pytest.mark.defect("B11")
async def test_the_configuration_sets_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original reads it and runs one worker for each kind."""
    workers = {}

    class Counted(Controller):
        def __init__(self, name: str, *arguments: Any, **options: Any) -> None:
            workers[name] = options["workers"]
            super().__init__(name, *arguments, **options)

    monkeypatch.setattr(controllers, "Controller", Counted)
    concurrency = {"TrainJob.trainer.kubeflow.org": 3, "ClusterTrainingRuntime.trainer.kubeflow.org": 2}
    clock, framework = VirtualClock(), Framework(load_plugins())
    controllers.make_controllers(
        client=cast("KubeClient", None),
        caches=Caches(Script(clock), framework.watches(), clock=clock),
        framework=framework,
        recorder=cast("EventRecorder", None),
        configuration=Configuration(controller=ControllerSection(group_kind_concurrency=concurrency)),
        clock=clock,
        observer=TrainJobObserver(TrainJobsMetrics(), clock=clock, trace_id=lambda _: ""),
    )
    assert workers == {
        "trainjob_controller": 3,
        "trainjob_diagnosis": WORKERS,
        "trainingruntime_controller": controllers.RUNTIME_WORKERS,
        "clustertrainingruntime_controller": 2,
    }
