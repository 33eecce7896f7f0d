"""What is varied, with how many jobs, how often, and what is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from bench import samples
from bench.api import Api, for_all
from bench.burst import Load, Phase
from bench.processes import Program
from bench.workloads import TrainJobs
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, NAMESPACES, Resource
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS
from trainmaster.runtime.jsontree import JsonObject

RUNTIMES: Final = 20
"""More than the metrics tell apart."""

FOREIGN: Final = 3000
"""Of each kind, objects in the cluster that are nobody's TrainJobs."""

SLOW: Final = 0.05
"""Seconds that a slow API server takes for a write, more than otherwise."""

ENVIRONMENT: Final = 16 * 1024
"""Bytes of variables of a large TrainJob."""


@dataclass(frozen=True)
class Variant:
    """One way to run a manager."""

    name: str
    """As the tables call it."""

    load: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `bench.burst.Load`."""

    sizes: tuple[int, ...] = (1_000,)
    """With which numbers of jobs of its experiment it is tried; what others are compared with is, with all."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One question."""

    name: str
    runs: Mapping[int, int]
    """How often, by the number of jobs."""

    variants: tuple[Variant, ...]
    """The first is what the others are compared with; a single one is compared by the number of jobs."""

    figures: tuple[str, ...]
    """Those of the benchmark that answer it."""

    phases: Callable[[int], frozenset[Phase]] = lambda _: frozenset()
    """What happens besides start and creation, by the number of jobs."""

    def variants_of(self, jobs: int) -> tuple[Variant, ...]:
        """Return the variants that are tried with so many jobs."""
        first, *others = self.variants
        return first, *(each for each in others if jobs in each.sizes or jobs not in self.runs)

    def load(self, variant: Variant, jobs: int) -> Load:
        """Return what to measure with."""
        return Load(**{"jobs": jobs, "workload": TrainJobs(), "phases": self.phases(jobs), **variant.load})


@dataclass(frozen=True)
class OfManyRuntimes(TrainJobs):
    """TrainJobs of twenty runtimes."""

    def job(self, number: int) -> JsonObject:
        """Build a job."""
        job = samples.trainjob(number)
        job["spec"]["runtimeRef"]["name"] += f"-{number % RUNTIMES}"
        return job

    def cluster_objects(self) -> Iterator[tuple[Resource, JsonObject]]:
        """Yield the runtimes."""
        for number in range(RUNTIMES):
            runtime = samples.runtime()
            runtime["metadata"]["name"] += f"-{number}"
            yield CLUSTER_TRAINING_RUNTIMES, runtime


@dataclass(frozen=True)
class Large(TrainJobs):
    """TrainJobs with many variables."""

    def job(self, number: int) -> JsonObject:
        """Build a job."""
        job = samples.trainjob(number)
        job["spec"]["trainer"]["env"] += [
            {"name": f"SETTING_{index}", "value": "value-" * 20} for index in range(ENVIRONMENT // 150)
        ]
        return job


async def _slow_writes(api: Api) -> None:
    rule = {"verb": "create,update,patch", "user_agent": "trainmaster/"}
    await api.send("POST", "/trainmaster.dev/faults", {"rule": rule, "action": {"type": "delay", "seconds": SLOW}})


async def _fill(api: Api) -> None:
    """Fill the cluster with what many clusters have besides training: ConfigMaps, and JobSets of others."""
    await api.send("POST", NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "others"}})
    template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example.com/main"}]}}}}

    async def create(number: int) -> None:
        metadata = {"name": f"other-{number}", "namespace": "others"}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"file": "x" * 4096}}
        spec = {"replicatedJobs": [{"name": "main", "template": template}]}
        jobset = {"apiVersion": JOBSETS.api_version, "kind": JOBSETS.kind, "metadata": metadata, "spec": spec}
        await api.send("POST", CONFIGMAPS.path("others"), config_map)
        await api.send("POST", JOBSETS.path("others"), jobset)

    await for_all(range(FOREIGN), create)


def _configured(**sections: JsonObject | list[str]) -> dict[str, Any]:
    return {"configuration": sections}


def _workers(number: int) -> dict[str, Any]:
    return _configured(controller={"groupKindConcurrency": {"TrainJob.trainer.kubeflow.org": number}})


def _limited(qps: float, burst: int) -> dict[str, Any]:
    return _configured(clientConnection={"qps": qps, "burst": burst})


_DEFAULTS: Final = Variant("defaults")
_UNCOUNTED: Final = Program(module="bench.uncounted")
_SPEED: Final = ("create.cpu", "create.rate", "create.latency_p50", "create.latency_p99", "manager.peak_memory")


def _all_phases(jobs: int) -> frozenset[Phase]:
    return frozenset({"restart"}) if jobs > 10_000 else frozenset({"settled", "restart", "live"})


EXPERIMENTS: Final[Mapping[str, Experiment]] = MappingProxyType(
    {
        each.name: each
        for each in (
            Experiment(
                name="sizes",
                runs={100: 3, 1_000: 3, 10_000: 1, 50_000: 1},
                variants=(Variant("defaults", {"workload": OfManyRuntimes()}),),
                figures=(
                    "create.cpu", "settled.cpu", "life.cpu", "restart.cpu", "restart.ready", "create.rate",
                    "manager.worst_stall", "manager.peak_memory", "manager.cached", "manager.series",
                ),
                phases=_all_phases,
            ),
            Experiment(
                name="options",
                runs={100: 3, 1_000: 3, 10_000: 1},
                variants=(
                    _DEFAULTS,
                    Variant("1 worker", _workers(1)),
                    Variant("64 workers", _workers(64), (100, 1_000, 10_000)),
                    Variant("`qps` 50, `burst` 100", _limited(50, 100), (100, 1_000)),
                    Variant("`qps` 200, `burst` 400", _limited(200, 400)),
                    Variant("`logging.verbosity` 2", _configured(logging={"verbosity": 2})),
                    Variant("a plugin that is not ours", {"plugins": {"idle": "tuning.idle_plugin:Idle"}}),
                    Variant("no TLS to the API server", {"uses_tls": False}),
                ),
                figures=_SPEED,
            ),
            Experiment(
                name="metrics",
                runs={1_000: 3},
                variants=(_DEFAULTS, Variant("without metrics of TrainJobs", {"program": _UNCOUNTED})),
                figures=("create.cpu", "life.cpu", "manager.peak_memory", "manager.series"),
                phases=lambda _: frozenset({"live"}),
            ),
            Experiment(
                name="slow",
                runs={1_000: 3},
                variants=tuple(
                    Variant(name, {"prepare": _slow_writes, **_workers(number)})
                    for name, number in (("16 workers", 16), ("4 workers", 4), ("64 workers", 64))
                ),
                figures=_SPEED,
            ),
            Experiment(
                name="namespaces",
                runs={100: 3},
                variants=(
                    Variant("all namespaces, the default", {"prepare": _fill}),
                    Variant(
                        "`watchNamespaces`: that of the TrainJobs",
                        {"prepare": _fill, **_configured(watchNamespaces=[samples.NAMESPACE])},
                        (100,),
                    ),
                ),
                figures=("start.ready", "start.memory", "manager.peak_memory", "manager.cached", "create.cpu"),
            ),
            Experiment(
                name="objects",
                runs={1_000: 3},
                variants=(Variant("TrainJobs of 1 KiB"), Variant("TrainJobs of 17 KiB", {"workload": Large()})),
                figures=("create.cpu", "manager.peak_memory", "manager.cached", "manager.worst_stall"),
            ),
            Experiment(
                name="waiting",
                runs={100: 1},
                variants=(_DEFAULTS,),
                figures=("create.cpu", "waiting.cpu", "waiting.lists", "waiting.writes"),
                phases=lambda _: frozenset({"waiting"}),
            ),
        )
    }
)  # fmt: skip
"""By name, the most important first: it takes a while, and what has ended is kept."""
