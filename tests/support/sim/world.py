"""One simulated cluster with managers in it, from its first moment to its last."""

import asyncio
import gc
import random
import re
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import orjson
from support.plugins import indexed_job
from support.sim.actors import Fate, GarbageCollector, JobActor, JobSetActor, User
from support.sim.listening import LogEntry, listening
from support.sim.loop import PROCESS, Process, SimClock, VirtualLoop
from support.sim.pods import NodeActor, PodFate
from support.sim.server import SimServer, SimTransport
from support.sim.wire import Request

from trainmaster.controller.configuration import (
    OFF,
    Configuration,
    Health,
    LeaderElection,
    Metrics,
    TrainingOperator,
    Webhook,
)
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.cache import reflector
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.manager.parts import Setup
from trainmaster.devcluster.apiserver.bootstrap import create_system_namespaces
from trainmaster.devcluster.apiserver.registry import Registry
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import (
    EVENTS,
    JOBSETS,
    LEASES,
    NAMESPACES,
    PODS,
    TRAINJOBS,
    GroupResource,
)
from trainmaster.devcluster.apiserver.storage import ObjectKey, Store
from trainmaster.devcluster.controllers.job.controller import JobController
from trainmaster.devcluster.controllers.jobset.controller import JobSetController
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    TRAINING_OPERATOR_DEFINITIONS,
    install_definitions,
)
from trainmaster.metrics.controller import PANICS
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jsontree import JsonObject

_ACCESS = RestConfig(server="https://simulated")
_NOT_COUNTED = frozenset({EVENTS, LEASES, NAMESPACES})
"""Best effort, or nobody's business: neither a part of the end state nor of the counts."""

_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_GENERATED = re.compile(rb"(job-node-\d+-\d+)-[a-z0-9]{5}\b")
"""Names of pods of Jobs, which have a random end."""
_NOTHING = re.compile(rb"(?!)()")
_VERSION = re.compile(rb'"resourceVersion":"\d+"')
LEASE_DURATION = 15.0
RESTART_DELAY = 2.0
"""Seconds until a program that ended is started again."""

PATIENCE = 7200.0
"""Seconds of virtual time after which a step of a scenario that has not come about never will. A clock may have been an
hour ahead when the time was noted that something counts from."""

ABSENT_INTERVAL = 60.0
"""Seconds after which a manager looks again for a kind that the server does not serve. In a simulation that is the
gangs', which nobody installs meanwhile; as often as a real manager asks, half of all requests would be that."""


class Stuck(Exception):
    """A scenario did not get on."""


def registry_with(install: Callable[[Api], Awaitable[object]]) -> Registry:
    """Return a registry with the definitions that `install` applies; cannot be called inside of a loop."""
    registry = builtin_registry()

    async def fill() -> None:
        await install(Api(Store(), registry))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(fill())
    return registry


@cache
def registry_of(*definitions: str) -> Registry:
    """The kinds that are served; compiled once for all simulations, which change nothing about them."""
    return registry_with(lambda api: install_definitions(api, definitions))


def trainer_registry(*, gangs: bool = False, jobsets: bool = True) -> Registry:
    """The registry of a cluster for TrainJobs."""
    if not jobsets:
        return registry_of(*TRAINER_DEFINITIONS)
    return registry_of(*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS, *(GANG_DEFINITIONS if gangs else ()))


@cache
def _framework(*, plain_jobs: bool) -> Framework:
    if plain_jobs:
        return Framework([*load_plugins(disabled=["jobset"]), indexed_job(always=True)])
    return Framework(load_plugins())


@cache
def _job_kinds(settings: str) -> list[JobKind]:
    """Load kinds once for all simulations; what a manager knows of its jobs they do not hold."""
    return job_kinds(Configuration(training_operator=TrainingOperator.model_validate_json(settings)))


def jobs_registry(*, gangs: bool = True) -> Registry:
    """The registry of a cluster for V1 jobs as well."""
    definitions = (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS, *TRAINING_OPERATOR_DEFINITIONS)
    return registry_of(*definitions, *(GANG_DEFINITIONS if gangs else ()))


@cache
def quiet(*, elects: bool, gang_scheduler: str = "", kinds: tuple[str, ...] = ()) -> Configuration:
    """A configuration without servers; checked once for all simulations, which looks at what is installed."""
    return Configuration(
        webhook=Webhook(enabled=False),
        metrics=Metrics(bind_address=OFF),
        health=Health(health_probe_bind_address=OFF),
        leader_election=LeaderElection(leader_elect=elects, resource_namespace="kubeflow"),
        training_operator=TrainingOperator(gang_scheduler_name=gang_scheduler, enable_scheme=list(kinds)),
    )


class World:
    """A cluster in which a scenario plays; create it inside the loop."""

    def __init__(
        self,
        loop: VirtualLoop,
        *,
        registry: Registry,
        seed: int,
        fates: Mapping[str, Fate] = MappingProxyType({}),
        pods: Mapping[str, Sequence[PodFate]] | None = None,
        configuration: Configuration | None = None,
        collected_after: float = 2.0,
        plain_jobs: bool = False,
        attempts: bool = False,
        bare: bool = False,
    ) -> None:
        """With `bare` nobody but the scenario plays the part of controllers of workloads."""
        self.loop = loop
        self._plain_jobs = plain_jobs
        self.chooser = random.Random(seed)
        self.uids: list[str] = []
        api = Api(Store(), registry, clock=SimClock(loop).now, chooser=random.Random(seed), new_uid=self._new_uid)
        self.server = SimServer(api, loop, self.chooser, on_accepted=self._accepted)
        self.user = User(self.server)
        self.violations: list[str] = []
        self.disturbed_until = 0.0
        """When the last disturbance ends."""
        self.processes: list[Process] = []
        self.clocks: dict[Process, SimClock] = {}
        self._running: dict[Process, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self.wanted = 0
        self._configuration = configuration or quiet(elects=False)
        self._elects = self._configuration.leader_election.leader_elect
        self._renewed: dict[str, float] = {}
        """By process: when the server last accepted it as the holder of the lease."""
        self._controllers = [JobSetController(api), JobController(api)] if attempts else []
        if not bare and not attempts:
            self._workloads = (JobActor if plain_jobs else JobSetActor)(self.server, self.chooser, fates)
        self.nodes = NodeActor(self.server, self.chooser, pods) if pods is not None else None
        self._collector = GarbageCollector(self.server, self.chooser, delay=collected_after)

    def _new_uid(self) -> str:
        self.uids.append(str(uuid.UUID(int=len(self.uids) + 1)))
        return self.uids[-1]

    async def begin(self) -> None:
        """Fill the cluster with what every scenario finds in it, and start the actors."""
        await create_system_namespaces(self.server.api)
        self.server.spawn(self._collector.run())
        for each in self._controllers:
            self.server.spawn(each.run())

    # Programs

    def start(self) -> Process:
        """Start a manager, with empty caches."""
        process = Process(f"manager-{len(self.processes) + 1}")
        self.processes.append(process)
        clock = self.clocks[process] = SimClock(self.loop)

        def connect(**options: Any) -> KubeClient:
            return KubeClient(_ACCESS, transport=SimTransport(self.server, process), clock=clock, **options)

        stop = asyncio.Event()

        async def run() -> None:
            # Inside its own context from the first line on: what it makes belongs to it.
            manager = Manager(
                Setup(
                    _ACCESS,
                    self._configuration,
                    _framework(plain_jobs=self._plain_jobs),
                    job_kinds=_job_kinds(self._configuration.training_operator.model_dump_json()),
                    clock=clock,
                    new_client=connect,
                    elect_in_thread=False,
                )
            )
            await manager.run(stop)

        context = copy_context()
        context.run(PROCESS.set, process)
        task = self.loop.create_task(run(), context=context)
        task.add_done_callback(lambda ended: self._ended(process, ended), context=self.context())
        self._running[process] = task, stop
        return process

    def context(self) -> Any:
        """Return a context that belongs to no program."""
        context = copy_context()
        context.run(PROCESS.set, None)
        return context

    def crash(self, process: Process) -> None:
        """End a program as SIGKILL does: nothing that it still does reaches anybody."""
        process.dead = True
        task, _ = self._running.pop(process)
        task.cancel()

    async def stop(self, process: Process) -> None:
        """End a program as SIGTERM does."""
        task, stop = self._running.pop(process)
        stop.set()
        await asyncio.wait({task})

    def replace(self, process: Process) -> None:
        """Kill a program; it is started again after a while."""
        self.crash(process)
        self.loop.call_later(RESTART_DELAY, lambda: self.ensure(self.wanted), context=self.context())

    def ensure(self, wanted: int) -> None:
        """Have so many managers run from now on; those that are missing are started."""
        self.wanted = wanted
        while len(self._running) < wanted:
            self.start()

    @property
    def living(self) -> list[Process]:
        """The programs that run."""
        return list(self._running)

    def leader(self) -> Process | None:
        """The program whose renewal of the lease was accepted last."""
        return max(self.living, key=lambda process: self._renewed.get(process.name, -1.0), default=None)

    def _ended(self, process: Process, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not self._elects and not process.dead:
            self.violations.append(f"{process.name} ended by itself: {task.exception()!r}")
        if process in self._running:
            # The lease was lost, as a rule: the process exits, and Kubernetes starts it again.
            del self._running[process]
            self.loop.call_later(RESTART_DELAY, lambda: self.ensure(self.wanted), context=self.context())

    def _accepted(self, process: Process, request: Request) -> None:
        """Judge a write that the server accepted: with several managers only the holder of the lease may write."""
        if not self._elects:
            return
        now = self.loop.time()
        if request.target.resource == LEASES.resource:
            if orjson.loads(request.body or b"{}").get("spec", {}).get("holderIdentity"):
                self._renewed[process.name] = now
            return
        age = now - self._renewed.get(process.name, float("-inf"))
        if age > LEASE_DURATION:
            self.violations.append(f"{process.name} wrote ({request}) {age:.1f} s after its last renewal of the lease")

    # Steps of scenarios

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until something holds."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    await self.server.change()
        except TimeoutError as error:
            raise Stuck(f"never came about: {what}") from error

    # Judgement

    def end_state(self) -> dict[str, Any]:
        """Return all objects without what differs from run to run: UIDs, versions, times."""
        store = self.server.api.store
        names: dict[bytes, bytes] = {}
        numbers: Counter[ObjectKey] = Counter()
        for event in self.server.history:
            if event.type == "ADDED":
                numbers[event.key] += 1
                name = f"uid of {_text(event.key)} #{numbers[event.key]}"
                names[event.record.metadata["uid"].encode()] = name.encode()
        pattern = re.compile(b"|".join(map(re.escape, names)) or b"(?!)")
        generated = _GENERATED if self._controllers else _NOTHING
        state = {}
        for kind in self.server.api.registry.kinds():
            if kind.stored_as in _NOT_COUNTED:
                continue
            for record in store.list(kind.stored_as):
                obj = {**record.object, "metadata": _identity(record.object["metadata"])}
                if "resilience" in (obj.get("status") or {}):
                    obj["status"] = {**obj["status"], "resilience": _charges(obj["status"]["resilience"])}
                text = _VERSION.sub(b'"resourceVersion":""', _TIME.sub(b"<time>", orjson.dumps(obj)))
                text = pattern.sub(lambda match: names[match.group()], text)
                text = generated.sub(rb"\1", text)
                metadata = record.metadata
                key = ObjectKey(kind.stored_as, metadata.get("namespace", ""), metadata["name"])
                state[generated.sub(rb"\1", _text(key).encode()).decode()] = orjson.loads(text)
        return state

    def counts(self) -> Counter[str]:
        """Return how often each object was created and deleted."""
        generated = _GENERATED if self._controllers else _NOTHING
        return Counter(
            generated.sub(rb"\1", f"{event.type} {_text(event.key)}".encode()).decode()
            for event in self.server.history
            if event.type != "MODIFIED" and event.key.resource not in _NOT_COUNTED
        )

    def takeovers(self) -> list[str]:
        """Tell of each object that a job got that was made for an earlier one of the same name."""
        return [
            f"{_text(event.key)} was taken over from another job at revision {event.revision}"
            for event in self.server.history
            if event.type == "MODIFIED"
            and event.previous is not None
            and (before := _controller(event.previous.metadata)) is not None
            and before != _controller(event.record.metadata)
        ]

    def jobset(self, name: str) -> JsonObject | None:
        """Return a JobSet if it is there."""
        return self.user.find(JOBSETS, "default", name)

    def holds(self, name: str, condition: str, resource: GroupResource = TRAINJOBS) -> bool:
        """Whether a condition of a TrainJob, or of a job of another kind, is true."""
        job = self.user.find(resource, "default", name) or {}
        return _is_true(job, condition)

    def jobset_holds(self, name: str, condition: str) -> bool:
        """Whether a condition of a JobSet is true."""
        return _is_true(self.jobset(name) or {}, condition)

    def pods_called(self, name: str) -> set[str]:
        """Return the UIDs of all pods that ever had a name."""
        named = (event.record.metadata for event in self.server.history if event.key.resource == PODS)
        return {metadata["uid"] for metadata in named if metadata["name"] == name}

    def runs(self, name: str) -> bool:
        """Whether the pods of a JobSet are ready."""
        jobset = self.jobset(name) or {}
        return any(jobs["ready"] for jobs in jobset.get("status", {}).get("replicatedJobsStatus", ()))


def _controller(metadata: JsonObject) -> str | None:
    references = metadata.get("ownerReferences") or ()
    return next((each["uid"] for each in references if each.get("controller")), None)


def _is_true(obj: JsonObject, condition: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _charges(resilience: JsonObject) -> JsonObject:
    """Return what of a ledger does not depend on who saw what, and when."""
    attempts = [(each["number"], each["charged"]) for each in resilience.get("attempts", ())]
    return {
        "attempts": attempts,
        "charged": resilience.get("chargedRestarts", 0),
        "phase": resilience["goodput"]["phase"],
        "violations": len(resilience.get("violations", ())),
    }


def _identity(metadata: JsonObject) -> JsonObject:
    kept = {name: value for name, value in metadata.items() if name not in {"uid", "resourceVersion"}}
    managers = [{**entry, "time": None} for entry in metadata.get("managedFields") or ()]
    return {**kept, "managedFields": sorted(managers, key=orjson.dumps)}


def _text(key: ObjectKey) -> str:
    resource: GroupResource = key.resource
    return " ".join([resource.resource, "/".join(part for part in (key.namespace, key.name) if part)])


def panics() -> float:
    """Count the unforeseen exceptions of all controllers of this Python process."""
    samples = (sample for metric in PANICS.collect() for sample in metric.samples)
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))


async def _end_all() -> None:
    """Cancel what still runs, and what that starts on its way out; asyncio's own way leaves the latter behind."""
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        # With a limit, because what belongs to a paused process ends when that goes on.
        await asyncio.wait(left, timeout=60)


@contextmanager
def _garbage_left() -> Iterator[None]:
    """Leave garbage to the end.

    A collection in between visits everything that the tests of this process have ever loaded, again and again. It would
    also end what was given up, such as the frames of a watch, at moments that depend on the runs before.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(1)
        if enabled:
            gc.enable()


def simulate(main: Callable[[VirtualLoop, list[LogEntry]], Awaitable[Any]], *, seed: int) -> Any:
    """Run something on a fresh virtual loop, with every source of chance drawn from the seed."""
    numbers = random.Random(seed)
    unhandled: list[str] = []
    state = random.getstate()
    random.seed(seed)

    def note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        unhandled.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def guarded(loop: VirtualLoop, entries: list[LogEntry]) -> Any:
        loop.set_exception_handler(note)
        try:
            return await main(loop, entries)
        finally:
            await _end_all()

    def real_time(*_: Any) -> Any:
        raise AssertionError("a part of the manager was not given the clock, and looks at the time of the machine")

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=numbers.getrandbits(128), version=4)

    try:
        with (
            patch("uuid.uuid4", new_uuid),
            patch.object(SystemClock, "monotonic", real_time),
            patch.object(SystemClock, "now", real_time),
            patch.object(SystemClock, "sleep", real_time),
            patch.object(SystemClock, "call_at", real_time),
            patch.object(SystemClock, "timeout", real_time),
            patch.object(reflector, "_ABSENT_INTERVAL", ABSENT_INTERVAL),
            listening() as entries,
            _garbage_left(),
            asyncio.Runner(loop_factory=VirtualLoop) as runner,
        ):
            loop = runner.get_loop()
            assert isinstance(loop, VirtualLoop)
            work: Coroutine[Any, Any, Any] = guarded(loop, entries)
            result = runner.run(work)
    finally:
        random.setstate(state)
    assert not unhandled, unhandled
    return result
