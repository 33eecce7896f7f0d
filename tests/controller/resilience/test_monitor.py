"""Jobs that stand still, break a rule about their log or train alone, in virtual time: what is found, read and done."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any, cast

import pytest
from support.failing_pods import container_status, pod
from support.objects import runtime_object, trainjob_object
from support.series import series
from support.world import JOBSET_COMPLETED, KEY, World

from trainmaster.controller.kube.clock import time_text
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, ServerError
from trainmaster.controller.resilience.log_reader import LARGEST_PART, READS_PER_SECOND, LogReader
from trainmaster.controller.resilience.monitor import TURNS_PER_SECOND
from trainmaster.controller.resilience.progress import TURN
from trainmaster.controller.resilience.world import asked_for
from trainmaster.runtime.jsontree import JsonObject

AWAY = ServerError(status=500, reason="InternalError", message="dial tcp 10.0.0.7:10250: i/o timeout")
DENIED = Forbidden(status=403, reason="Forbidden", message="no")
STEP = {"name": "step", "pattern": r"step (\d+)", "every": "8760h"}
SOURCES = [("lines", [], ""), ("any node", [], ""), ("numbers", [STEP], "lines"), ("reports", [STEP], "numbers")]
"""What tells of progress, the rules for that, and what may go on while it does not."""


class Training:
    """A job of some nodes whose pods run from its first second on, if nothing else is said."""

    def __init__(self, policy: JsonObject | None, *, nodes: int = 3, **trainer: Any) -> None:
        self.world = World()
        self.nodes = nodes
        policies: dict[str, Any] = {} if policy is None else {"resiliencePolicy": policy}
        job = trainjob_object(trainer={"numNodes": nodes, **trainer}, **policies)
        self.world.put(job, runtime_object(policy={"torch": {}}))

    @property
    def now(self) -> str:
        return time_text(self.world.clock.now())

    async def start(self, *, pending: int | None = None, attempt: int = 0, suffix: str = "abcde") -> None:
        """Have the JobSet make its pods."""
        await self.world.reconcile()
        counts = {"name": "node", "ready": 1, "active": 1}
        self.world.change("JobSet", status={"replicatedJobsStatus": [counts], "restarts": attempt})
        [job] = self.world.find("JobSet")["spec"]["replicatedJobs"]
        template = job["template"]["spec"]["template"]
        for rank in range(self.nodes):
            waits = rank == pending
            state = {"waiting": {"reason": "ContainerCreating"}} if waits else {"running": {"startedAt": self.now}}
            made = pod(
                rank,
                containers=[container_status(state)],
                phase="Pending" if waits else "Running",
                jobset_uid=self.uid,
                attempt=attempt,
                suffix=suffix,
            )
            made["metadata"]["labels"] |= template.get("metadata", {}).get("labels", {})
            made["metadata"]["creationTimestamp"] = self.now
            made["spec"] = {**template["spec"], "nodeName": f"node-{rank}"}
            self.world.show_pod(made)
        await self.world.reconcile()

    def write(self, rank: int, line: str, *, behind: int = 0) -> None:
        log = self.world.logs.setdefault(f"demo-node-0-{rank}-abcde", [])
        assert isinstance(log, list)
        log.append(f"{self.world.clock.now() - timedelta(seconds=behind):%Y-%m-%dT%H:%M:%S}.000000000Z {line}")

    def refuse(self, rank: int, error: KubeError) -> None:
        self.world.logs[f"demo-node-0-{rank}-abcde"] = error

    def report(self, **fields: Any) -> None:
        status = self.world.find("TrainJob").get("status") or {}
        self.world.change("TrainJob", status={**status, "trainerStatus": {"lastUpdatedTime": self.now} | fields})

    async def train(self, seconds: int, source: str = "", every: int = 5) -> None:
        """Train for a while, and tell of it so often."""
        for number in range(seconds):
            if number % every == 0 and source:
                self.tell(source, number // every)
            await self.world.watch(1)

    def tell(self, source: str, number: int) -> None:
        if source == "reports":
            self.report(progressPercentage=number)
        elif source == "any node":
            self.write(2, "still alive")
        else:
            self.write(0, f"step {number if source == 'numbers' else 7} of many")

    @property
    def uid(self) -> str:
        return str(self.world.find("JobSet")["metadata"]["uid"])

    @property
    def is_replaced(self) -> bool:
        jobset = self.world.server.get(("JobSet", KEY), {"metadata": {}})
        return "deletionTimestamp" in jobset["metadata"]

    @property
    def failure(self) -> tuple[str, str]:
        failed = self.world.conditions.get("Failed", {})
        return failed.get("reason", ""), failed.get("message", "")

    @property
    def resilience(self) -> JsonObject:
        found: JsonObject = self.world.find("TrainJob")["status"]["resilience"]
        return found

    @property
    def attempts(self) -> list[JsonObject]:
        found: list[JsonObject] = self.resilience.get("attempts", [])
        return found

    @property
    def reads(self) -> list[str]:
        return [each for each in self.world.requests if each.startswith("log ")]


async def started(policy: JsonObject, **options: Any) -> Training:
    training = Training({"maxRestarts": 1, **policy}, **options)
    await training.start()
    return training


@pytest.mark.parametrize(("source", "rules", "then"), SOURCES)
async def test_a_training_that_stands_still_is_restarted_in_time(source: str, rules: list[Any], then: str) -> None:
    """What is told by less than the best source is no progress."""
    training = await started({"progress": {"within": "40s"}, "logs": rules})
    training.write(1, "hello")
    await training.train(120, source)
    assert not training.is_replaced
    await training.train(30, then)
    assert not training.is_replaced
    await training.train(30, then, every=99)
    assert training.is_replaced
    [attempt] = training.attempts
    assert (attempt["reason"], attempt["charged"]) == ("NoProgress", True)
    assert attempt["message"].startswith("no progress for ")
    assert "node 1 wrote last 2 min ago" in attempt["message"] or "node 1 wrote last 3 min ago" in attempt["message"]
    assert training.world.events[-2:] == [attempt["message"], f"all pods are made anew: {attempt['message']}"]


async def life(policy: JsonObject | None, *, source: str = "") -> tuple[list[str], list[int]]:
    """Let eight nodes train for ten minutes, to the end; returns the writes, and the seconds in which logs are read."""
    training, reads = Training(policy, nodes=8), list[int]()
    await training.start()
    for second in range(600):
        before = len(training.reads)
        if source:
            training.tell(source, second)
        await training.world.watch(1)
        reads += [second] * (len(training.reads) - before)
    training.world.change("JobSet", status=JOBSET_COMPLETED)
    await training.world.watch(60)
    return [each for each in training.world.requests if each not in training.reads], reads


async def test_a_job_without_a_policy_costs_what_it_did_and_progress_one_read_in_an_interval_at_most() -> None:
    """`make bench` has the same budget for a whole life."""
    writes, reads = await life(None)
    assert len(writes) == 4
    assert not reads
    for source, rules in (("lines", []), ("numbers", [STEP])):
        for within, interval in (("1m", 15), ("10m", 60)):
            with_policy, reads = await life({"progress": {"within": within}, "logs": rules}, source=source)
            assert with_policy == writes
            assert min(later - read for read, later in pairwise(reads)) >= interval
            assert 600 / interval - 1 <= len(reads) <= 600 / interval + 1


async def test_a_job_that_goes_on_costs_a_read_in_each_interval_and_its_numbers_are_shown() -> None:
    training = await started({"progress": {"within": "80s"}, "logs": [STEP]})
    await training.train(400, "numbers")
    assert 18 <= len(training.reads) <= 21
    assert len({each.split()[1] for each in training.reads}) == 1
    shown = [each for each in series("trainmaster_log_rule_number") if each.labels["trainjob"] == "demo"]
    assert [(each.labels["rule"], each.value > 70) for each in shown] == [("step", True)]
    training.world.change("JobSet", status=JOBSET_COMPLETED)
    await training.world.watch(60)
    assert not [each for each in series("trainmaster_log_rule_number") if each.labels["trainjob"] == "demo"]
    assert not training.world.monitor._watched


async def test_clocks_of_nodes_may_be_behind() -> None:
    training = await started({"progress": {"within": "40s"}})
    for number in range(100):
        training.write(0, "goes on", behind=600)
        if number > 50:
            at = time_text(training.world.clock.now() - timedelta(seconds=600))
            training.report(progressPercentage=number, lastUpdatedTime=at)
        await training.world.watch(1)
    assert not training.is_replaced
    await training.train(50, "lines")
    assert training.is_replaced


async def test_what_is_reported_costs_no_read() -> None:
    training = await started({"progress": {"within": "80s"}})
    await training.train(400, "reports")
    assert len(training.reads) <= 1


@pytest.mark.parametrize("policy", [{}, {"nodes": {"avoidAfter": 1}}, {"worldSize": "Ignore"}, {"progress": {}}])
async def test_a_policy_that_asks_for_none_of_it_costs_nothing(policy: JsonObject) -> None:
    training = await started(policy)
    training.world.requests.clear()
    await training.train(100)
    assert training.world.requests == []
    assert not training.world.monitor._watched
    assert len(training.world.monitor_queue) == 0


NAN = 'log rule r: node 0 wrote what must not appear: "loss: nan in https://[redacted]@host"'
MISSING = "log rule r: /loss: (nan)/ did not appear"


@pytest.mark.parametrize(
    ("limits", "writes", "message"),
    [
        ({}, [30], NAN),
        ({}, [], ""),
        ({"within": "40s"}, [], f"{MISSING} within 40s after all pods ran"),
        ({"within": "40s"}, [30], ""),
        ({"every": "40s"}, [], ""),
        ({"every": "40s"}, [30, 60], f"{MISSING} again within 40s"),
        ({"every": "40s"}, range(0, 200, 30), ""),
        ({"within": "1h", "every": "40s"}, [30], f"{MISSING} again within 40s"),
    ],
)
@pytest.mark.parametrize("action", ["Restart", "Fail", "Event"])
async def test_a_rule_about_the_log_is_held(limits: Any, writes: Any, message: str, action: str) -> None:
    rule = {"name": "r", "pattern": "loss: (nan)", "action": action, **limits}
    training = await started({"logs": [rule]})
    for second in range(200):
        if second in writes:
            training.write(0, "loss: nan in https://me:secret@host")
        training.write(1, "loss: nan")
        await training.world.watch(1)
    events = [each for each in training.world.events if not each.startswith("all pods")]
    assert events == ([message] if message else [])
    broken = bool(message) and action != "Event"
    assert training.is_replaced == (broken and action == "Restart")
    assert training.failure == (("LogRuleBroken", message) if broken and action == "Fail" else ("", ""))
    assert [each["reason"] for each in training.attempts] == (["LogRuleBroken"] if broken else [])


async def test_a_rule_may_be_about_all_nodes() -> None:
    training = await started({"logs": [{"name": "r", "pattern": "Xid", "from": "All", "action": "Fail"}]})
    training.write(2, "NVRM: Xid 79")
    await training.train(60)
    assert training.failure == ("LogRuleBroken", 'log rule r: node 2 wrote what must not appear: "NVRM: Xid 79"')


@pytest.mark.parametrize(
    ("pending", "message"),
    [
        (1, "not all pods ran 40s after the first of them was created: node 1 does not run: its containers are being"),
        (None, "no progress within 40s after its start: nodes 0, 1 and 2 wrote nothing"),
    ],
)
async def test_a_training_that_does_not_start_is_found(pending: int | None, message: str) -> None:
    training = Training({"progress": {"within": "20s", "start": "40s", "action": "Fail"}})
    await training.start(pending=pending)
    await training.train(38)
    assert training.failure == ("", "")
    await training.train(10)
    assert training.failure[0] == "NoProgress"
    assert message in training.failure[1]


@pytest.mark.parametrize("error", [AWAY, DENIED])
async def test_nothing_follows_from_a_log_that_cannot_be_read(error: KubeError) -> None:
    rules = [{"name": "r", "pattern": "a", "within": "20s"}, {"name": "s", "pattern": "b", "every": "20s"}]
    training = await started({"progress": {"within": "20s"}, "logs": rules})
    for rank in range(3):
        training.refuse(rank, error)
    await training.train(300)
    assert not training.is_replaced
    assert len(training.reads) < 150
    denied = f"its resilience policy cannot be followed: {error}"
    assert training.world.events == ([denied] if error is DENIED else [])


async def test_what_is_not_known_of_a_node_is_said() -> None:
    training = await started({"progress": {"within": "20s"}})
    await training.train(30, "lines")
    training.refuse(1, AWAY)
    await training.train(40)
    assert training.is_replaced
    assert f"node 1 not known: {AWAY}" in training.attempts[-1]["message"]


@pytest.mark.parametrize("stands", [True, False])
async def test_a_manager_that_was_away_finds_what_stands_still_and_nothing_else(stands: bool) -> None:
    """Its logs are longer than what is read at once."""
    rule = {"name": "r", "pattern": "begins", "within": "1m", "action": "Fail"}
    training = await started({"progress": {"within": "60s", "start": "10s"}, "logs": [rule]}, nodes=1)
    for line in ("x" * 1000, "begins", "y" * 1000):
        for _ in range(1 if line == "begins" else LARGEST_PART // 1000):
            training.write(0, line)
    training.world.clock.step(2000)
    if not stands:
        training.write(0, "step 9")
    training.world.clock.step(50)
    training.world.restart()
    training.world.queue.add(KEY)
    for _ in range(40):
        if not stands:
            training.write(0, "step 10")
        await training.world.watch(1)
    assert training.is_replaced == stands
    assert training.failure == ("", "")


@pytest.mark.parametrize(("source", "rules", "then"), SOURCES)
async def test_a_manager_that_takes_over_knows_what_stands_still(source: str, rules: list[Any], then: str) -> None:
    training = await started({"progress": {"within": "40s", "action": "Event"}, "logs": rules})
    for stalls in (1, 2):
        await training.train(30, source)
        await training.train(70, then)
        before = training.resilience
        assert (before["goodput"]["phase"], len(before["violations"])) == ("Stalled", 1)
        training.world.restart()
        training.world.queue.add(KEY)
        await training.train(100, then)
        assert training.resilience == before
        assert len(training.world.events) == stalls
        await training.train(30, source)
        assert training.resilience["goodput"]["phase"] == "Productive"
        assert "violations" not in training.resilience
    assert 200 < training.resilience["goodput"]["stalledSeconds"] < 400
    assert not training.attempts


async def test_a_manager_that_takes_over_tells_nothing_twice() -> None:
    rules = [{"name": name, "pattern": name, "within": within} for name, within in (("odd", None), ("right", "20s"))]
    training = await started({"worldSize": "Warn", "logs": rules}, nodes=2)
    training.write(0, "  global_world_sizes=[1]")
    training.write(0, "odd")
    for _ in range(2):
        await training.train(60)
        training.world.restart()
        training.world.queue.add(KEY)
    assert [each.split(":")[0].split(" of ")[0] for each in training.world.events] == [
        "1 process",
        "log rule odd",
        "log rule right",
    ]
    before = len(training.reads)
    await training.train(120)
    assert len(training.reads) == before


@pytest.mark.parametrize("lead", [0, 3])
async def test_a_line_longer_than_a_read_is_judged_by_its_beginning(lead: int) -> None:
    training = await started({"logs": [{"name": "nan", "pattern": "nan"}, {"name": "end", "pattern": "end"}]}, nodes=1)
    for _ in range(lead):
        training.write(0, "step")
    training.write(0, "nan" + "x" * 2 * LARGEST_PART)
    await training.train(30)
    assert [each[:12] for each in training.world.events] == ["log rule nan"]
    training.write(0, "end")
    await training.train(30)
    assert [each[:12] for each in training.world.events[1:]] == ["log rule end"]


def lines(world: int) -> Iterator[str]:
    yield f"  global_world_sizes=[{', '.join([str(world)] * 2)}]"
    yield f"Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/{world}"


@pytest.mark.parametrize("policy", ["Verify", "Warn"])
@pytest.mark.parametrize(
    ("world", "trainer", "is_right"),
    [
        (1, {"numProcPerNode": 2}, False),
        (6, {"numProcPerNode": 2}, True),
        (8, {"numProcPerNode": 2}, True),
        (5, {"resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}}, False),
    ],
)
@pytest.mark.parametrize("told", [0, 1, "report"])
async def test_a_world_that_is_too_small_is_found_at_once(
    policy: str, world: int, trainer: JsonObject, is_right: bool, told: Any
) -> None:
    training = await started({"worldSize": policy}, **trainer)
    await training.train(3)
    if told == "report":
        training.report(worldSize=world)
        await training.world.reconcile()
    else:
        training.write(0, list(lines(world))[told])
        await training.train(16)
    wrong = f"{world} process{'es' * (world > 1)} of 3 nodes with 2 processes each train"
    assert [each.startswith(wrong) for each in training.world.events] == ([] if is_right else [True])
    assert training.failure[0] == ("WorldSizeMismatch" if policy == "Verify" and not is_right else "")
    reads = len(training.reads)
    await training.train(60)
    assert len(training.reads) == (reads if told != "report" else 1)


@pytest.mark.parametrize(
    ("variables", "devices", "world"),
    [
        ({}, {}, "3 nodes"),
        ({"PET_NNODES": "2:4", "PET_NPROC_PER_NODE": "1"}, {}, "2 nodes with 1 process each"),
        ({"PET_NPROC_PER_NODE": "auto"}, {"nvidia.com/gpu": "8"}, "3 nodes with 8 processes each"),
        ({"PET_NPROC_PER_NODE": "auto"}, {}, "3 nodes"),
        ({"PET_NNODES": "9" * 5000, "PET_NPROC_PER_NODE": "9" * 5000}, {}, "3 nodes"),
        ({"PET_NPROC_PER_NODE": "gpu"}, {"nvidia.com/gpu": "many"}, "3 nodes"),
    ],
)
def test_the_world_that_was_asked_for(variables: dict[str, str], devices: dict[str, str], world: str) -> None:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    asked = asked_for({"env": env, "resources": {"limits": devices}}, 3)
    assert str(asked) == world
    assert (asked.lacks(1), asked.lacks(24)) == (True, False)


async def test_an_attempt_begins_anew() -> None:
    """The report, the world and the log of the one before count for nothing."""
    training = await started({"maxRestarts": 9, "progress": {"within": "40s"}, "worldSize": "Warn"}, nodes=1)
    training.report(progressPercentage=1, worldSize=0)
    await training.train(30)
    training.world.logs.clear()
    await training.start(attempt=1)
    training.world.clock.step(5)
    await training.train(30, "lines")
    assert not training.is_replaced
    assert len([each for each in training.world.events if "train, as" in each]) == 1
    await training.train(50)
    assert training.is_replaced


async def test_a_pod_in_the_place_of_the_only_one_begins_anew() -> None:
    training = await started({"progress": {"within": "40s"}}, nodes=1)
    training.write(0, "hello")
    await training.train(35)
    [old] = training.world.watched_pods.each()
    training.world.show_pod(old, is_gone=True)
    await training.start(suffix="other")
    await training.train(35)
    assert not training.is_replaced
    await training.train(15)
    assert training.is_replaced


async def test_lines_without_end_are_searched_with_pauses() -> None:
    """So many rules and lines would take all the time that there is."""
    training = await started({"logs": [{"name": "step", "pattern": "step", "within": "1h"}]}, nodes=1)
    for number in range(30 * TURN):
        training.write(0, str(number))
    look = asyncio.ensure_future(training.world.monitor.look(KEY))
    await training.world.clock.advance(0.5)
    assert not look.done()
    await training.world.clock.advance(30 / TURNS_PER_SECOND)
    assert look.done()


async def test_ten_thousand_jobs_are_read_in_turns() -> None:
    world = World()
    reader = LogReader(cast("KubeClient", world), world.clock)
    reads = [reader.read("team", f"pod-{each}", "node", after=None, tail=1) for each in range(10_000)]
    running = asyncio.gather(*reads)
    await world.clock.advance(20)
    assert len(world.requests) == pytest.approx(READS_PER_SECOND * 21, abs=1)
    await world.clock.advance(200)
    assert len(await running) == 10_000
