"""The controllers that the manager runs, each with its work queue and its reconciler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.diagnosis.diagnosis import WORKERS, Diagnosis
from trainmaster.controller.job_metrics.observer import TrainJobObserver
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.kube.workqueue.queue import CHANGE_PRIORITY, WorkQueue
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.controller.reconciling.controller import Controller, ReconcileTracer
from trainmaster.controller.reconciling.outcomes import until_due
from trainmaster.controller.reconciling.reconciler import Reconciler
from trainmaster.controller.reconciling.runtimes import RuntimeReconciler
from trainmaster.controller.reconciling.trainjobs.decider import TrainJobDecider
from trainmaster.controller.reconciling.trainjobs.plugin_failures import SkippedPlugins
from trainmaster.controller.reconciling.trainjobs.status import only_counters
from trainmaster.controller.resilience import monitor as monitoring
from trainmaster.controller.resilience.lost_nodes import NAME as LOST_NODES
from trainmaster.controller.resilience.lost_nodes import LostNodes
from trainmaster.controller.resilience.monitor import Monitor
from trainmaster.controller.resilience.resilience import Resilience
from trainmaster.controller.resources import JOBSETS, RUNTIMES, TRAINJOBS
from trainmaster.metrics.queue import WorkQueueMetrics
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND
from trainmaster.runtime.framework import Framework

if TYPE_CHECKING:
    from trainmaster.controller.tracing.tracing import Tracing

RUNTIME_WORKERS = 1


def make_controllers(
    *,
    client: KubeClient,
    caches: Caches,
    framework: Framework,
    recorder: EventRecorder,
    configuration: Configuration,
    clock: Clock,
    observer: TrainJobObserver,
    lost_nodes: LostNodes,
    planner: Executor | None = None,
    plugin_threads: PluginThreads | None = None,
    tracing: Tracing | None = None,
) -> list[Controller]:
    """Make all controllers; from now on the caches fill their queues (M-4).

    The observer follows the TrainJobs from now on, and counts from the moment in which this process leads.
    """

    def workers(resource: Resource, default: int | Callable[[], int]) -> int | Callable[[], int]:
        configured = configuration.controller.group_kind_concurrency
        return configured.get(f"{resource.kind}.{resource.group}", default)

    def tracer(name: str, resource: Resource, store: Store) -> ReconcileTracer | None:
        return None if tracing is None else tracing.reconciles(name, resource.kind, store.uid)

    def queue_of(name: str, store: Store) -> WorkQueue:
        return WorkQueue(clock=clock, metrics=WorkQueueMetrics(name), exists=store.__contains__)

    queue = queue_of("trainjob_controller", caches.trainjobs.store)
    diagnosis_queue = queue_of("trainjob_diagnosis", caches.trainjobs.store)
    stores = caches.stores()
    _, jobsets = stores.get((JOBSET_API_VERSION, JOBSET_KIND), (JOBSETS, Store()))
    _, pods = stores.get(("v1", "Pod"), (PODS, Store()))
    diagnosis = Diagnosis(
        client, diagnosis_queue, trainjobs=caches.trainjobs.store, jobsets=jobsets, recorder=recorder, clock=clock
    )
    monitor_queue = queue_of("trainjob_monitor", caches.trainjobs.store)
    monitor = Monitor(
        client,
        monitor_queue,
        trainjobs=caches.trainjobs.store,
        jobsets=jobsets,
        pods=pods,
        recorder=recorder,
        clock=clock,
    )
    resilience = Resilience(clock, caches.trainjobs.store, monitor, on_lost_after=lost_nodes.want)
    caches.add_pod_handler(resilience.attempts.on_pod_event)
    caches.add_pod_handler(lost_nodes.on_pod_event)
    decider = TrainJobDecider(
        api_reader=client,
        trainjobs=caches.trainjobs.store,
        listers=caches.listers(),
        framework=framework,
        clock=clock,
        deleted_workloads=caches.deleted_workloads,
        diagnosis=diagnosis,
        resilience=resilience,
        skipped_plugins=SkippedPlugins(recorder, clock),
        planner=planner,
        plugin_threads=plugin_threads,
    )
    trainjobs = Reconciler(
        decider,
        client=client,
        resource=TRAINJOBS,
        jobs=caches.trainjobs.store,
        stores=stores,
        queue=queue,
        recorder=recorder,
        clock=clock,
        only_counters=only_counters,
        is_quiet=True,
    )

    def reconcile_again(key: str) -> None:
        trainjobs.event_filter.add(key, None, priority=CHANGE_PRIORITY)

    diagnosis.on_finding = monitor.on_violation = reconcile_again

    def delay_of(keys: Sequence[str], change: Delta) -> float:
        return trainjobs.schedule_counters(keys[0]) if decider.defer_counters(keys, change) else 0.0

    caches.add_trainjob_handlers(queue, trainjobs.event_filter, delay_of=delay_of, plugin_threads=plugin_threads)
    caches.add_observer(observer)

    def on_start() -> None:
        trainjobs.on_start()
        observer.lead()

    controllers = [
        Controller(
            "trainjob_diagnosis",
            until_due(diagnosis.read),
            diagnosis_queue,
            workers=WORKERS,
            on_start=diagnosis.on_start,
            clock=clock,
        ),
        Controller("trainjob_monitor", until_due(monitor.look), monitor_queue, workers=monitoring.WORKERS, clock=clock),
        Controller(
            "trainjob_controller",
            trainjobs.reconcile,
            queue,
            workers=workers(TRAINJOBS, lambda: client.concurrency_limit.limit),
            on_start=on_start,
            unobserved=trainjobs.unobserved,
            clock=clock,
            tracer=tracer("trainjob_controller", TRAINJOBS, caches.trainjobs.store),
        ),
        Controller(LOST_NODES, until_due(lost_nodes.reconcile), lost_nodes.queue, workers=1, clock=clock),
    ]
    for resource in RUNTIMES.values():
        name = f"{resource.kind.lower()}_controller"
        store = caches.runtimes[resource].store
        queue = queue_of(name, store)
        caches.add_runtime_handlers(resource, queue)
        reconciler = RuntimeReconciler(client, resource, store)
        controllers.append(
            Controller(
                name,
                reconciler.reconcile,
                queue,
                workers=workers(resource, RUNTIME_WORKERS),
                clock=clock,
                tracer=tracer(name, resource, store),
            )
        )
    return controllers
