"""Whatever a plugin does wrong for one TrainJob, its owner is told in a sentence, and other TrainJobs go on."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from structlog.testing import capture_logs
from support.objects import runtime_object, trainjob_object
from support.resolutions import KnownServer
from support.series import value_of
from support.vandal import FOREVER, HOOKS, TIME, faulty, named, raise_key_error, sleep, sleepers, spin
from support.virtualtime import VirtualClock
from support.world import World

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.controller.plugins.guard import PluginGuard
from trainmaster.controller.plugins.observer import PluginCallObserver
from trainmaster.controller.reconciling.outcomes import Requeue, RequeueAfter
from trainmaster.controller.reconciling.trainjobs.plugin_failures import RETRY_INTERVAL
from trainmaster.controller.resources import JOBSETS
from trainmaster.controller.webhooks import AdmissionHandlers, Workers
from trainmaster.controller.webhooks.handlers import VALIDATE_TRAINING_RUNTIME, VALIDATE_TRAINJOB
from trainmaster.controller.webhooks.review import AdmissionRequest, AdmissionResponse
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

SERVED = {(kind.api_version, kind.kind): (kind, Store()) for kind in (JOBSETS, CONFIGMAPS)}
LIMIT = 0.2


@pytest.fixture
def guard() -> Iterator[PluginGuard]:
    with sleepers():
        yield PluginGuard(time_limit=LIMIT, failures=3, period=60.0, now=TIME)


@pytest.fixture
def new_world() -> Iterator[Callable[..., World]]:
    with ExitStack() as stack:
        yield lambda *plugins, **options: stack.enter_context(closing(World(*plugins, **options)))


async def reconciled(world: World, *names: str) -> None:
    """Reconcile TrainJobs, one after the other."""
    world.put(runtime_object(), *(trainjob_object(name, uid=f"uid-of-{name}") for name in names))
    for name in names:
        await world.reconciler.reconcile(f"team/{name}")


def conditions(world: World, name: str) -> dict[str, JsonObject]:
    status = world.find("TrainJob", name).get("status") or {}
    return {condition["type"]: condition for condition in status.get("conditions") or []}


def blocked(world: World, name: str) -> tuple[str, str] | None:
    condition = conditions(world, name).get("Blocked")
    return None if condition is None else (condition["reason"], condition["message"])


WRONG: list[tuple[str, Callable[[], Any], str]] = [
    *((hook, raise_key_error, f"plugin acme failed in {hook}: KeyError: 'region'") for hook in HOOKS),
    ("applies_to", lambda: None, "plugin acme failed in applies_to: TypeError: it must return True or False, not None"),
    ("build", lambda: [1], "plugin acme failed in build: TypeError: build must return Desired objects, not int"),
    ("build", lambda: None, "plugin acme failed in build: TypeError: 'NoneType' object is not iterable"),
    ("status", dict, "plugin acme failed in status: TypeError: it must return a StatusReport, not {}"),
    ("pre_build", lambda: (_ for _ in ()), "plugin acme failed in pre_build: TypeError: it must change what it is "),
    ("build", lambda: [Desired({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})],
     "plugin acme failed in build: ValueError: it built something without apiVersion, kind and metadata.name"),
    ("build", named("a/b"), "ValueError: the name of a ConfigMap, 'a/b', may not contain '/'"),
    ("build", named(".."), "ValueError: the name of a ConfigMap, '..', may not be '..'"),
    ("build", named("settings", namespace="kube-system"),
     "ValueError: ConfigMap settings is in namespace 'kube-system', not in that of the TrainJob"),
    ("build", lambda: [Desired({"apiVersion": "acme.io/v1", "kind": "Queue", "metadata": {"name": "q"}})],
     "plugin acme builds Queue 'q' (acme.io/v1), without declaring that kind in its watch_extension"),
    ("build", spin, "plugin acme took longer than 0.2 s in build"),
    ("build", sleep, "plugin acme took longer than 0.2 s in build"),
    ("status", spin, "plugin acme took longer than 0.2 s in status"),
    ("status", sleep, "plugin acme took longer than 0.2 s in status"),
]  # fmt: skip


@pytest.mark.parametrize(("hook", "fault", "message"), WRONG)
async def test_the_owner_is_told_and_other_trainjobs_go_on(
    hook: str, fault: Callable[[], Any], message: str, guard: PluginGuard, new_world: Callable[..., World]
) -> None:
    world = new_world(faulty(hook, fault), guard=guard)
    await reconciled(world, "bad", "good")
    told = blocked(world, "bad")
    assert told is not None
    assert told[0] == "PluginFailed"
    assert message in told[1]
    assert blocked(world, "good") is None
    assert world.find("JobSet", "good")


async def test_trainjobs_are_reconciled_while_a_plugin_blocks_for_others(new_world: Callable[..., World]) -> None:
    """A plugin holds up some threads, none of which has to be given up before others go on."""
    jobs = [f"bad-{number}" for number in range(2)]
    guard = PluginGuard(time_limit=FOREVER, failures=99, period=60.0, now=TIME)
    world = new_world(faulty("build", sleep, jobs=tuple(jobs)), guard=guard)
    world.put(runtime_object(), *(trainjob_object(name, uid=f"uid-of-{name}") for name in (*jobs, "good")))
    with sleepers():
        blocking = [asyncio.create_task(world.reconciler.reconcile(f"team/{name}")) for name in jobs]
        await world.reconciler.reconcile("team/good")
        assert not any(task.done() for task in blocking)
        assert world.find("JobSet", "good")
    await asyncio.gather(*blocking)


async def test_a_plugin_that_keeps_failing_is_quarantined_and_its_jobs_say_so(
    guard: PluginGuard, new_world: Callable[..., World]
) -> None:
    jobs = [f"bad-{number}" for number in range(4)]
    world = new_world(faulty("build", raise_key_error, jobs=tuple(jobs)), guard=guard)
    refused = {"plugin": "acme", "phase": "enforce_ml_policy", "result": "refused"}
    with capture_logs() as logs:
        await reconciled(world, *jobs)
    failed = ("PluginFailed", "plugin acme failed in build: KeyError: 'region'")
    # Not what the errors of others say: they quote whatever they want.
    why = "after 3 failures in a row in build (KeyError); it is tried again every 60 s"
    quarantined = ("PluginQuarantined", f"plugin acme is quarantined {why}")
    assert [blocked(world, name) for name in jobs] == [failed, failed, failed, quarantined]
    (line,) = [entry for entry in logs if entry["event"].startswith("a plugin kept failing")]
    assert (line["log_level"], line["plugin"], line["phase"], line["failures"]) == ("error", "acme", "build", 3)
    assert value_of("trainmaster_plugin_quarantined", {"plugin": "acme"}) == 1
    assert guard.detail() == "acme is quarantined after 3 failures in a row in build"
    assert value_of("trainmaster_plugin_calls_total", {**refused, "phase": "build"})
    outcome = await world.reconciler.reconcile("team/bad-3")
    assert isinstance(outcome, Requeue)
    assert outcome.at_latest == RETRY_INTERVAL


def serves_bad_ones(self: Any, info: Any, job: Any) -> bool:
    return bool(job.metadata.name.startswith("bad"))


@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize("phase", [*(hook for hook in HOOKS if hook != "applies_to"), "validate"])
async def test_trainjobs_that_a_plugin_does_not_serve_go_on_whatever_it_is_quarantined_for(
    phase: str, policy: str, guard: PluginGuard, new_world: Callable[..., World]
) -> None:
    bad = tuple(f"bad-{number}" for number in range(3))
    plugin = faulty(phase, raise_key_error, jobs=bad, applies_to=serves_bad_ones)
    world = new_world(plugin, guard=guard, failure_policies={"acme": policy})
    with closing(Workers(world.framework.skips)) as workers:
        for name in bad if phase == "validate" else ():
            await judge(world.framework, workers, name)
        await reconciled(world, *bad, "good")
        assert guard.detail() == f"acme is quarantined after 3 failures in a row in {phase}"
        assert conditions(world, "good") == {}
        assert world.find("JobSet", "good")
        await world.reconciler.reconcile("team/good")
        assert conditions(world, "good") == {}
        answer = await judge(world.framework, workers, "good")
        assert (answer.allowed, list(answer.warnings)) == (True, [])


async def test_trainjobs_that_a_plugin_does_not_serve_go_on_however_many_of_its_calls_do_not_come_back(
    guard: PluginGuard, new_world: Callable[..., World]
) -> None:
    bad = tuple(f"bad-{number}" for number in range(3))
    world = new_world(faulty("build", sleep, jobs=bad, applies_to=serves_bad_ones), guard=guard)
    with sleepers(), closing(Workers(world.framework.skips)) as workers:
        await reconciled(world, *bad, "good")
        assert value_of("trainmaster_plugin_stuck_calls", {"plugin": "acme"}) == len(bad)
        assert conditions(world, "good") == {}
        assert world.find("JobSet", "good")
        answer = await judge(world.framework, workers, "good")
        assert (answer.allowed, list(answer.warnings)) == (True, [])


@pytest.mark.parametrize("fault", [raise_key_error, sleep])
@pytest.mark.parametrize("policy", ["fail", "skip"])
async def test_a_plugin_that_cannot_say_whom_it_serves_concerns_those_alone_for_which_it_cannot(
    policy: str, fault: Callable[[], Any], guard: PluginGuard, new_world: Callable[..., World]
) -> None:
    bad = tuple(f"bad-{number}" for number in range(5))
    plugin = faulty("applies_to", fault, jobs=bad)
    world = new_world(plugin, guard=guard, failure_policies={"acme": policy})
    await reconciled(world, *bad, "good")
    told = {"fail": {"Blocked"}, "skip": {"PluginSkipped"}}[policy]
    assert [set(conditions(world, name)) for name in bad] == [told] * 5
    assert guard.detail() is None, "it is never quarantined for that"
    if fault is sleep:
        assert value_of("trainmaster_plugin_stuck_calls", {"plugin": "acme"}) == 3, "no further thread is given to it"
    else:
        assert conditions(world, "good") == {}
        assert world.find("JobSet", "good")


async def test_a_plugin_that_works_again_is_called_again(new_world: Callable[..., World]) -> None:
    now, broken = 0.0, True

    def fault() -> Any:
        return raise_key_error() if broken else []

    guard = PluginGuard(time_limit=LIMIT, failures=1, period=60.0, now=lambda: now)
    world = new_world(faulty("build", fault), guard=guard)
    await reconciled(world, "bad")
    broken = False
    await world.reconciler.reconcile("team/bad")
    assert (blocked(world, "bad") or ("",))[0] == "PluginQuarantined"
    now = 60.0
    with capture_logs() as logs:
        await world.reconciler.reconcile("team/bad")
    assert blocked(world, "bad") is None
    assert "a plugin works again and is called as before" in [entry["event"] for entry in logs]
    assert value_of("trainmaster_plugin_quarantined", {"plugin": "acme"}) == 0
    assert guard.detail() is None


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (raise_key_error, "plugin acme failed in build: KeyError: 'region'"),
        (spin, "plugin acme took longer than 0.2 s in build"),
        (sleep, "plugin acme took longer than 0.2 s in build"),
        (lambda: [1], "plugin acme failed in build: TypeError: build must return Desired objects, not int"),
    ],
)
async def test_a_trainjob_goes_on_without_a_plugin_that_may_be_skipped(
    fault: Callable[[], Any], text: str, guard: PluginGuard, new_world: Callable[..., World]
) -> None:
    world = new_world(faulty("build", fault), guard=guard, failure_policies={"acme": "skip"})
    with capture_logs() as logs:
        await reconciled(world, "bad", "good")
    skipped = conditions(world, "bad")["PluginSkipped"]
    assert (skipped["status"], skipped["reason"]) == ("True", "PluginFailed")
    assert skipped["message"] == f"this TrainJob goes on without acme: {text}"
    assert world.events == [skipped["message"]]
    assert [entry["plugins"] for entry in logs if entry["event"] == "the TrainJob goes on without a plugin"] == [
        [("acme", "PluginFailed")]
    ]
    assert value_of("trainmaster_plugin_skipped_total", {"plugin": "acme", "reason": "PluginFailed"})
    assert blocked(world, "bad") is None
    assert world.find("JobSet", "bad")
    assert "PluginSkipped" not in conditions(world, "good")


async def test_texts_that_differ_every_time_do_not_write_the_status_every_time_and_go_when_the_plugin_works_again(
    guard: PluginGuard, new_world: Callable[..., World]
) -> None:
    count, broken = 0, True

    def fault() -> Any:
        nonlocal count
        count += 1
        if broken:
            raise ValueError(f"request {count} {'x' * 100_000}")
        return []

    world = new_world(faulty("build", fault), guard=guard, failure_policies={"acme": "skip"})
    await reconciled(world, "bad")
    assert len(conditions(world, "bad")["PluginSkipped"]["message"]) < 1000
    for _ in range(3):
        assert await world.reconciler.reconcile("team/bad") == RequeueAfter(RETRY_INTERVAL)
    assert (len(world.patches), len(world.events)) == (1, 1)
    broken = False
    await world.reconciler.reconcile("team/bad")
    assert conditions(world, "bad") == {}


async def test_events_reach_a_plugin_that_is_quarantined(guard: PluginGuard, new_world: Callable[..., World]) -> None:
    """Whom an object concerns that nobody mapped is not known afterwards."""

    def watch_extension(self: Any) -> list[Watch]:
        return [Watch("v1", "ConfigMap", "configmaps", jobs=lambda obj: [("team", obj["metadata"]["name"])])]

    jobs = tuple(f"bad-{number}" for number in range(3))
    world = new_world(faulty("build", raise_key_error, jobs=jobs, watch_extension=watch_extension), guard=guard)
    await reconciled(world, *jobs)
    assert guard.detail() is not None
    (watch,) = [each for each in world.framework.watches() if each.declared_by == "acme"]
    assert watch.jobs is not None
    assert watch.jobs({"metadata": {"name": "a"}}) == [("team", "a")]


async def judge(framework: Framework, workers: Workers, name: str) -> AdmissionResponse:
    handlers = AdmissionHandlers(
        framework, SERVED, KnownServer(runtime_object()), workers=workers, clock=VirtualClock()
    ).handlers()
    request = AdmissionRequest("u-1", "CREATE", trainjob_object(name, uid=f"uid-of-{name}"), None)
    return await handlers[VALIDATE_TRAINJOB](request)


@pytest.mark.parametrize(
    ("hook", "fault", "message"),
    [
        ("validate", raise_key_error, "plugin acme failed in validate: KeyError: 'region'"),
        ("validate", lambda: 1, "plugin acme failed in validate: TypeError: 'int' object is not iterable"),
        ("validate", lambda: ["odd"], "it must return FieldError and FieldWarning objects, not str"),
        (
            "validate",
            lambda: [FieldError("spec", ["a", "b"])],  # type: ignore[arg-type]  # the fault
            "the detail of a FieldError must be a text, not ['a', 'b']",
        ),
        (
            "validate",
            lambda: [FieldWarning(1, "odd")],  # type: ignore[arg-type]  # the fault
            "the path of a FieldWarning must be a text, not 1; for several ",
        ),
        ("validate", spin, "plugin acme took longer than 0.2 s in validate"),
        ("validate", sleep, "plugin acme took longer than 0.2 s in validate"),
        ("build", sleep, "plugin acme took longer than 0.2 s in build"),
        ("build", raise_key_error, "plugin acme failed in build: KeyError: 'region'"),
        ("applies_to", raise_key_error, "plugin acme failed in applies_to: KeyError: 'region'"),
    ],
)
async def test_at_admission_a_plugin_costs_the_requests_that_it_serves(
    hook: str, fault: Callable[[], Any], message: str, guard: PluginGuard
) -> None:
    for policy in ("fail", "skip"):
        framework = Framework([*load_plugins(), faulty(hook, fault)], guard=guard, failure_policies={"acme": policy})
        with closing(Workers(framework.skips)) as workers:
            bad, good = await judge(framework, workers, "bad"), await judge(framework, workers, "good")
        assert (good.allowed, list(good.warnings)) == (True, [])
        assert bad.allowed == (policy == "skip")
        assert message in (bad.message if policy == "fail" else " ".join(bad.warnings))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (raise_key_error, "plugin acme failed in config: KeyError: 'region'"),
        (spin, "plugin acme took longer than 0.2 s in config"),
        (sleep, "plugin acme took longer than 0.2 s in config"),
    ],
)
async def test_a_model_for_policies_costs_the_runtimes_that_have_one(
    fault: Callable[[], Any], message: str, guard: PluginGuard
) -> None:
    class Config(BaseModel):
        region: str

        @field_validator("region")
        @classmethod
        def _known(cls, region: str) -> str:
            return region if region == "good" else str(fault())

    plugin = faulty("enforce_ml_policy", raise_key_error, ml_policy_config=Config)

    async def judged(region: str) -> AdmissionResponse:
        handlers = AdmissionHandlers(framework, SERVED, KnownServer(), workers=workers, clock=VirtualClock())
        obj = runtime_object(policy={"custom": {"name": "acme", "config": {"region": region}}})
        return await handlers.handlers()[VALIDATE_TRAINING_RUNTIME](AdmissionRequest("u-1", "CREATE", obj, None))

    for policy in ("fail", "skip"):
        framework = Framework([*load_plugins(), plugin], guard=guard, failure_policies={"acme": policy})
        with closing(Workers(framework.skips)) as workers:
            bad, good = await judged("bad"), await judged("good")
        assert (good.allowed, list(good.warnings)) == (True, [])
        assert bad.allowed == (policy == "skip")
        assert message in (bad.message if policy == "fail" else " ".join(bad.warnings))


async def test_authors_find_the_traceback_in_the_log(guard: PluginGuard) -> None:
    framework = Framework([faulty("validate", raise_key_error)], guard=guard, observer=PluginCallObserver())
    with closing(Workers(framework.skips)) as workers, capture_logs() as logs:
        await judge(framework, workers, "bad")
    (line,) = [entry for entry in logs if entry["event"] == "a plugin failed"]
    frames = []
    traceback = line["exc_info"].__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert frames[-1] == "raise_key_error"
