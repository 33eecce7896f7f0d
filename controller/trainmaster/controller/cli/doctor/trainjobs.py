"""What the manager would write for the TrainJobs that are there, by its own planning; nothing of it is written."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from trainmaster.controller.cli.configured import UNKNOWN_AUTHORITY
from trainmaster.controller.cli.doctor.facts import Fact, Finding, Unknown, ok, some, warn
from trainmaster.controller.cli.printers import counted
from trainmaster.controller.kube.clock import time_text
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.manager.process import background_task
from trainmaster.controller.reconciling.expectations import WrittenStore
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.status_writer import without_times
from trainmaster.controller.reconciling.trainjobs.observe import Observed, observe
from trainmaster.controller.reconciling.trainjobs.plan import plan, seconds_to_deadline
from trainmaster.controller.reconciling.trainjobs.status import Plan, finished
from trainmaster.controller.reconciling.writes import GroupVersionKind
from trainmaster.runtime.api.constants import MANAGED_BY_TRAINER
from trainmaster.runtime.api.decoding import ApiTypeError, ObjectUnreadable, parse_runtime, parse_trainjob
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.jsontree import JsonObject, why_unreadable
from trainmaster.runtime.validation.runtime_ref import unsupported_runtime

_SYNC_AT_MOST: Final = 60.0
_LOOK_INTERVAL: Final = 0.2


@dataclass(slots=True)
class TakeOver:
    """What would happen to the TrainJobs."""

    total: int = 0
    finished: int = 0
    elsewhere: int = 0
    """Those of other controllers, by `managedBy`."""

    writes: dict[str, list[str]] = field(default_factory=dict)
    """For each TrainJob that would be written for: what."""

    problems: dict[str, str] = field(default_factory=dict)
    """For each that could not be built: why."""

    runtimes: list[JsonObject] = field(default_factory=list)
    """The runtimes that are there."""


async def plan_take_over(
    client: KubeClient,
    framework: Framework,
    *,
    namespaces: Sequence[str],
    now: datetime,
    look: Callable[[JsonObject], object] = lambda _: None,
) -> Fact[TakeOver]:
    """Fill caches as the manager does, plan for each TrainJob, and look at it and at each runtime."""
    caches = Caches(client, framework.watches(), namespaces=namespaces)
    async with background_task(caches.run(), name="caches"):
        try:
            async with asyncio.timeout(_SYNC_AT_MOST):
                await _synced(caches)
        except (Unknown, TimeoutError) as error:
            reason = str(error) or f"not all were read within {_SYNC_AT_MOST:g} s"
            return Fact(Unknown(f"TrainJobs cannot be planned for: {reason}", "ask somebody who may read these"))
        found = TakeOver()
        listers = caches.listers()
        unread = {kind for kind, (_, store) in caches.stores().items() if isinstance(store, WrittenStore)}
        for store in (informer.store for informer in caches.runtimes.values()):
            found.runtimes += store.each()
        for runtime in found.runtimes:
            look(runtime)
        trainjobs = caches.trainjobs.store
        for number, key in enumerate(list(trainjobs.keys())):
            if (raw := trainjobs.get(key)) is not None:
                look(raw)
                _plan(raw, listers, framework, found, unread=unread, now=now)
            if number % 100 == 0:
                await asyncio.sleep(0)  # watches go on
        return Fact(found)


async def _synced(caches: Caches) -> None:
    """Wait for the caches; those that may not be read never sync."""
    async with background_task(caches.wait_for_sync(), name="sync") as waiting:
        while not waiting.done():
            await asyncio.wait([waiting], timeout=_LOOK_INTERVAL)
            failed = [resource for resource in caches.not_synced() if resource.endswith(")")]  # the reason
            if failed and not waiting.done():
                raise Unknown("; ".join(failed), "")


def _plan(
    raw: JsonObject,
    listers: StoreListers,
    framework: Framework,
    found: TakeOver,
    *,
    unread: Collection[GroupVersionKind],
    now: datetime,
) -> None:
    name = f"{raw['metadata'].get('namespace')}/{raw['metadata']['name']}"
    found.total += 1
    unreadable = why_unreadable(raw)
    if unreadable is not None:
        found.problems[name] = f"it cannot be read: {unreadable}"
        return
    spec = raw.get("spec")
    if isinstance(spec, dict) and (spec.get("managedBy") or MANAGED_BY_TRAINER) != MANAGED_BY_TRAINER:
        found.elsewhere += 1
        return
    try:
        job = parse_trainjob(raw)
        found.finished += job.is_finished
        to_deadline = seconds_to_deadline(job, now)
        exceeded = to_deadline is not None and to_deadline <= 0
        observed = observe(job, raw, listers)
        report = framework.status(job, listers)
        observed = observed._replace(report=report)
        # As for the reconciler: nothing is built for a job that ends now.
        ends = report is not None and finished(report.conditions) and not job.is_finished
        planned = Plan(observed=observed) if ends else plan(observed, framework, fails=exceeded, now=now)
    except (ApiTypeError, ObjectUnreadable, PluginFailed) as error:
        found.problems[name] = f"it cannot be read: {error}"
        if not _is_told(raw, str(error)):
            found.writes[name] = ["its status"]
        return
    if planned.problem is not None:
        found.problems[name] = f"{planned.problem.reason}: {planned.problem.message}"
    writes = [
        f"{each.object['kind']} {each.object['metadata']['name']}"
        for each in planned.applies
        # What nobody reads is created if somebody has deleted it; the authority only the manager knows.
        if (each.object["apiVersion"], each.object["kind"]) not in unread
        and not (each.uid and UNKNOWN_AUTHORITY in (each.object.get("data") or {}).values())
    ]
    writes += [f"delete {each['kind']} {each['metadata']['name']}" for each in planned.deletes]
    if planned.expires_in is not None and planned.expires_in <= 0:
        writes.append("delete the TrainJob itself, which has outlived its time to live")
    if _changes_status(observed, planned.problem, exceeded=exceeded, now=now):
        writes.append("its status")
    if writes:
        found.writes[name] = writes


def _is_told(raw: JsonObject, reason: str) -> bool:
    """Tell whether the status of a TrainJob that cannot be read says so already, or that it has ended."""
    status = raw.get("status")
    listed = status.get("conditions") if isinstance(status, dict) else None
    conditions = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return finished(conditions) or any(reason in str(each.get("message")) for each in conditions)


def _changes_status(observed: Observed, problem: Problem | None, *, exceeded: bool, now: datetime) -> bool:
    """Tell whether the status would change, but for moments in it."""
    old = observed.raw.get("status") or {}
    unsupported = unsupported_runtime(observed.job.spec.runtime_ref)
    decided = Plan(observed=observed, deadline_exceeded=exceeded, unsupported_runtime=unsupported)
    return without_times(old) != without_times(decided.status(problem, now=time_text(now)))


def check_gangs(found: TakeOver, absent: Mapping[str, str]) -> Iterator[Finding]:
    """The runtimes that gang-schedule: is their scheduler there?"""
    for name, definition in absent.items():
        runtimes = [
            each["metadata"]["name"]
            for each in found.runtimes
            if name in ((each.get("spec") or {}).get("podGroupPolicy") or {})
        ]
        if runtimes:
            yield warn(
                f"these runtimes have podGroupPolicy.{name}, and {definition} is not there: {some(runtimes)}",
                "install that scheduler, or their TrainJobs are not built",
            )


def check_policies(found: TakeOver, framework: Framework) -> Iterator[Finding]:
    """The runtimes with a policy `custom`: is the plugin there, and does it take what it is given?"""
    for raw in found.runtimes:
        try:
            spec = parse_runtime(raw).spec
        except ApiTypeError:  # its TrainJobs tell that
            continue
        for problem in framework.policy_problems(spec.ml_policy, spec.pod_group_policy):
            namespace = raw["metadata"].get("namespace")
            name = f"{namespace}/{raw['metadata']['name']}" if namespace else raw["metadata"]["name"]
            yield warn(
                f"{raw['kind']} {name}: {problem}",
                "correct the runtime, or install the plugin that it is meant for in the image of the manager",
            )


def check_take_over(found: TakeOver) -> Iterator[Finding]:
    """The TrainJobs that are there: which would be written for, and which could not be built."""
    of_others = f", {found.elsewhere} of other controllers" if found.elsewhere else ""
    what = f"{counted(found.total, 'TrainJob')}, {found.finished} finished{of_others}"
    if not found.writes:
        yield ok(f"{what}: the manager would write nothing for them")
    else:
        jobs = [f"{name}: {', '.join(writes)}" for name, writes in found.writes.items()]
        yield warn(
            f"{what}: the manager would write for {len(jobs)} of them: {some(jobs, separator='; ')}",
            "see whether that is wanted; for one that is new, or was changed just now, any manager writes",
        )
    for reason, count in Counter(found.problems.values()).items():
        names = [name for name, other in found.problems.items() if other == reason]
        yield warn(
            f"{count} of them could not be built: {some(names)}: {reason}",
            "correct them, or the plugins of the configuration",
        )
