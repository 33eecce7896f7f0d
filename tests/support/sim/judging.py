"""Running plans and judging what came of them, against the undisturbed run of the same scenario.

What every run has to satisfy:
- the end state is that of the reference, but for UIDs, versions and times;
- each object was created and deleted as often as in the reference;
- some minutes after the scenario and its disturbances have ended nothing is written any more (eventually stable
  reconciliation), however long it goes on;
- no object changes its controller: what one job left is never taken over by the next of its name;
- no program ended by an unforeseen exception, and none was logged;
- with several managers, no write was accepted from one whose lease had run out.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from typing import Any

from support.sim.faults.lasting import LASTING_FAULTS, LATE, LastingFault
from support.sim.faults.plan import Fault, Plan
from support.sim.faults.watches import FRAME_FAULTS, OPENING_FAULTS, WatchFault
from support.sim.faults.writes import TIME_TRAVEL, WRITE_FAULTS, WriteFault
from support.sim.listening import LogEntry
from support.sim.loop import VirtualLoop
from support.sim.scenarios import SCENARIOS
from support.sim.server import Entry
from support.sim.world import Stuck, World, jobs_registry, panics, quiet, simulate, trainer_registry

from trainmaster.devcluster.apiserver.registry import Registry

SETTLING = 300.0
"""Seconds after the last disturbance until everything is as it will stay: more than four failed reconnections."""

STABLE = 600.0
"""Seconds for which nothing may be written after that."""

HURRY = 2
"""By how much both are shorter where leases are renewed every two seconds all the while."""

WRITTEN = ("configmaps", "podgroups", "jobsets")
LAGS = (1, 3, 6)
"""Events by which a cache lags after a restart."""

FRAMES_AT_MOST = 10
"""Frames of one watch that are disturbed: with several TrainJobs the later ones bring the same again."""

SEEDS = 4
"""How many different timings the lasting faults are run with."""

CHAOS_SEEDS = 12


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one plan."""

    plan: Plan
    violations: list[str]
    trace: list[Entry]
    end_state: dict[str, Any]
    counts: Counter[str]
    frames: Counter[str] = field(default_factory=Counter)
    """By resource: the events that its collection had."""

    @property
    def steps(self) -> int:
        """How many writes the managers sent, those that come with time left out."""
        return sum(" leases" not in line and " events" not in line for line in self._writes())

    @property
    def renewals(self) -> int:
        """How many writes of leases the managers sent."""
        return sum(" leases" in line for line in self._writes())

    def _writes(self) -> list[str]:
        verbs = ("create ", "update ", "patch ", "delete ")
        return [entry.request for entry in self.trace if entry.request.startswith(verbs)]

    def report(self) -> str:
        """Tell what went wrong, what was written, and how to see it again."""
        writes = [str(entry) for entry in self.trace if not entry.request.startswith(("watch", "list", "get"))]
        return "\n".join(
            [
                f"{len(self.violations)} violations in the plan: {self.plan}",
                f'replay: pytest tests/sim/test_perturbations.py -k asked_for --plan "{self.plan}"',
                *(f"  - {violation}" for violation in self.violations),
                "writes:",
                *(f"  {line}" for line in writes[:80]),
            ]
        )


def run(plan: Plan) -> Run:
    """Run one plan and judge it."""
    before = panics()
    result = _play(plan)
    if panics() != before:
        result.violations.append("a reconcile ended with an unforeseen exception")
    if plan.fault != "none":
        _compare(result, reference(plan.scenario))
    return result


def run_all(matrix: Sequence[Plan]) -> int:
    """Run plans; the first three that fail are told. Returns how many there were."""
    failed = [played.report() for plan in matrix if (played := run(plan)).violations]
    assert not failed, f"{len(failed)} of {len(matrix)} plans failed\n\n" + "\n\n".join(failed[:3])
    return len(matrix)


@cache
def reference(scenario: str) -> Run:
    """Return the undisturbed run of a scenario."""
    return _play(Plan(scenario=scenario, fault="none"))


def _play(plan: Plan) -> Run:
    scenario = SCENARIOS[plan.scenario]
    if scenario.pods is None or scenario.attempts:
        registry = trainer_registry(gangs=scenario.gangs, jobsets=not scenario.plain_jobs)
    else:
        registry = jobs_registry(gangs=scenario.gangs)

    async def main(loop: VirtualLoop, entries: list[LogEntry]) -> Run:
        return await _run(loop, entries, plan, registry)

    played: Run = simulate(main, seed=plan.seed)
    return played


def fault_of(world: World, plan: Plan) -> Fault:
    """Make the fault that a plan names."""
    if plan.fault in WRITE_FAULTS:
        return WriteFault(world, plan)
    if plan.fault in FRAME_FAULTS or plan.fault in OPENING_FAULTS:
        return WatchFault(world, plan)
    if plan.fault in LASTING_FAULTS or plan.fault == LATE:
        return LastingFault(world, plan)
    raise ValueError(f"there is no fault {plan.fault!r}")


async def _run(loop: VirtualLoop, entries: list[LogEntry], plan: Plan, registry: Registry) -> Run:
    scenario = SCENARIOS[plan.scenario]
    world = World(
        loop,
        registry=registry,
        seed=plan.seed,
        fates=scenario.fates,
        configuration=quiet(elects=scenario.managers > 1, gang_scheduler=scenario.gang_scheduler, kinds=scenario.kinds),
        pods=scenario.pods,
        collected_after=scenario.collected_after,
        plain_jobs=scenario.plain_jobs,
        attempts=scenario.attempts,
    )
    fault = world.server.interference = fault_of(world, plan)
    fault.begin()
    await world.begin()
    world.ensure(scenario.managers)
    try:
        await scenario.play(world)
    except Stuck as error:
        world.violations.append(str(error))
    while (left := world.disturbed_until - loop.time()) > 0:
        await asyncio.sleep(left)
    hurry = HURRY if scenario.managers > 1 else 1
    await asyncio.sleep(SETTLING / hurry)
    settled, state, written = loop.time(), world.end_state(), world.server.api.revision
    await asyncio.sleep(STABLE / hurry)
    late = [entry for entry in world.server.trace if entry.time > settled and _is_step(entry)]
    if late:
        world.violations.append(
            f"written {late[-1].time - settled:.0f} s after it should have settled: {late[-1].request}"
        )
    elif written != world.server.api.revision and world.end_state() != state:
        world.violations.append("the end state does not last")
    world.violations += world.takeovers()
    world.violations += [_unforeseen(entry) for entry in entries if "exception" in entry and not _of_the_dead(entry)]
    frames = Counter(event.key.resource.resource for event in world.server.history)
    return Run(plan, world.violations, world.server.trace, state, world.counts(), frames)


def _is_step(entry: Entry) -> bool:
    verb, resource, *_ = entry.request.split(" ")
    return verb not in {"get", "list", "watch"} and resource not in {"leases", "events"}


def _of_the_dead(entry: LogEntry) -> bool:
    process = entry["process"]
    return process is not None and process.dead


def _unforeseen(entry: LogEntry) -> str:
    return f"logged: {entry['event']}: {str(entry['exception'])[-1500:]}"


EARLY = frozenset((scenario, "clock-forward") for scenario in ("deadline", "job-deadline", "plain-deadline"))
"""A deadline is a moment of the wall clock: one that is an hour ahead brings it before anybody has told anything."""


TOO_EARLY = ("survives-rank-hangs", "clock-forward")
"""A clock that is an hour ahead finds no progress in any attempt, and spends all restarts."""


def _compare(result: Run, expected: Run) -> None:
    plan, state, wanted = result.plan, result.end_state, expected.end_state
    for key in sorted(state.keys() | wanted.keys()):
        if plan.scenario == "ttl" and _end_is_unknown(state.get(key)):
            continue
        difference = list(_differences(state.get(key), wanted.get(key)))
        if (plan.scenario, plan.fault) in EARLY:
            difference = [each for each in difference if "jobsStatus" not in each]
        if difference:
            result.violations.append(f"another end state of {key}: {'; '.join(difference[:5])}")
    if SCENARIOS[plan.scenario].counted and result.counts != expected.counts:
        more, less = result.counts - expected.counts, expected.counts - result.counts
        result.violations.append(f"other counts: more {dict(more)}, less {dict(less)}")


def _end_is_unknown(obj: dict[str, Any] | None) -> bool:
    """Whether a TrainJob says that nobody saw how it ended, which is true if what told it was lost."""
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    return any((each["type"], each["reason"]) == ("Blocked", "WorkloadGone") for each in conditions)


def _differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from _differences(one.get(name), other.get(name), f"{path}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differences(left, right, f"{path}[{number}]")
    elif one != other:
        yield f"{path} is {one!r:.300} and not {other!r:.300}"


# The matrix


def families() -> list[tuple[str, str]]:
    """Return every pair of a scenario and a fault."""
    everywhere = [*WRITE_FAULTS, *LASTING_FAULTS]
    # Who leads has nothing to do with how caches are filled: watches are disturbed where there is one manager.
    alone = [*OPENING_FAULTS, *FRAME_FAULTS, LATE]
    return [
        (scenario.name, fault)
        for scenario in SCENARIOS.values()
        for fault in scenario.faults or (everywhere if scenario.managers > 1 else everywhere + alone)
        if (scenario.name, fault) != TOO_EARLY
    ]


def plans(scenario: str, fault: str) -> list[Plan]:
    """Return every plan of a scenario with a fault: each write, each frame of each watch, several timings."""
    base = reference(scenario)
    if fault == TIME_TRAVEL:
        return [Plan(scenario=scenario, fault=fault, k=k, n=n) for k in range(1, base.steps + 1) for n in LAGS]
    if fault in WRITE_FAULTS:
        steps = [Plan(scenario=scenario, fault=fault, k=k) for k in range(1, base.steps + 1)]
        leases = range(1, min(base.renewals, 6) + 1)
        return steps + [Plan(scenario=scenario, fault=fault, k=k, on="leases") for k in leases]
    if fault in OPENING_FAULTS:
        return [Plan(scenario=scenario, fault=fault, on=on) for on in SCENARIOS[scenario].watched]
    if fault in FRAME_FAULTS:
        return [
            Plan(scenario=scenario, fault=fault, on=on, n=n)
            for on in SCENARIOS[scenario].watched
            # One more for the bookmark that ends the snapshot.
            for n in range(1, min(base.frames[on] + 1, FRAMES_AT_MOST) + 1)
        ]
    if fault == LATE and SCENARIOS[scenario].managers > 1:
        several = [subset for size in (1, 2, 3) for subset in combinations(WRITTEN, size)]
        return [
            Plan(scenario=scenario, fault=fault, on="+".join(on), seed=seed)
            for on in (("trainjobs",), *several)
            for seed in range(1, SEEDS + 1)
        ]
    if fault == LATE:
        return [Plan(scenario=scenario, fault=fault, on=on) for on in SCENARIOS[scenario].watched]
    seeds = CHAOS_SEEDS if fault == "chaos" else SEEDS
    return [Plan(scenario=scenario, fault=fault, seed=seed) for seed in range(1, seeds + 1)]
