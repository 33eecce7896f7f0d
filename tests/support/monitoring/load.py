"""What happens in the minutes for which the dashboards are judged.

| second | what |
|---|---|
| 0 | jobs come steadily: most complete, some fail, each in its own way; a few wait for what is not there |
| 30 | a burst of TrainJobs and of jobs of kubeflow.org/v1 |
| 60 | the API server is slow, and fails now and then, for half a minute |
| 120 | the leader is killed, as by a node that is lost; it comes back, and does not lead any more |
| 180 | the end |
"""

import asyncio
import random
import time
from typing import Final

from support.monitoring.cluster import Running

from bench.api import MERGE_PATCH, BenchmarkFailed, for_all
from trainmaster.runtime.jsontree import JsonObject

TEAMS: Final = ("team-vision", "team-speech")
RUNTIMES: Final = ("torch-finetune", "torch-vision", "tabular")
RESTARTING: Final = RUNTIMES[1]
"""Its JobSets are restarted once."""

_TRAINER: Final = "trainer.kubeflow.org/v1alpha1"
_IMAGE: Final = "example.com/train:1.4"

REPORT: Final = """\
import json, math, os, ssl, sys, time, urllib.request
from datetime import datetime, timezone

if os.environ.get("JOB_COMPLETION_INDEX", "0") != "0":
    time.sleep(float(sys.argv[1]))
    sys.exit(int(sys.argv[2]))
trust = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
began, lasts = time.monotonic(), float(sys.argv[1])
while (done := time.monotonic() - began) < lasts:
    loss = 0.3 + 2.1 * math.exp(-4 * done / lasts)
    status = {"progressPercentage": int(100 * done / lasts), "lastUpdatedTime":
              datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "metrics": [{"name": "loss", "value": f"{loss:.4f}"},
                          {"name": "accuracy", "value": f"{1 - loss / 2.6:.4f}"}]}
    token = open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps({"trainerStatus": status}).encode()
    try:
        request = urllib.request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], body, headers)
        urllib.request.urlopen(request, context=trust, timeout=10).close()
    except OSError:
        pass
    time.sleep(min(4, max(0.1, lasts - done)))
sys.exit(int(sys.argv[2]))
"""
"""A trainer that reports its progress; its arguments are for how many seconds, and how it ends."""


def namespace(name: str) -> JsonObject:
    """Build a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def runtime(name: str) -> JsonObject:
    """Build a runtime."""
    container = {"name": "node", "image": _IMAGE, "command": ["true"]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
    policy: JsonObject = {"numNodes": 1, "torch": {}} if name.startswith("torch") else {"numNodes": 1}
    restarts = {"failurePolicy": {"maxRestarts": 1}} if name == RESTARTING else {}
    return {
        "apiVersion": _TRAINER,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": {
            "mlPolicy": policy,
            "template": {"spec": {**restarts, "replicatedJobs": [{"name": "node", "template": job}]}},
        },
    }


def trainjob(
    name: str, team: str, runtime_name: str, script: str, *, nodes: int = 1, gpus: int = 0, reports: bool = False,
    image: str = _IMAGE, **spec: object,
) -> JsonObject:  # fmt: skip
    """Build a TrainJob; its script is one of Python with two arguments if it reports, else one of a shell."""
    command = ["python3", "-c", REPORT, *script.split()] if reports else ["sh", "-c", script]
    trainer: JsonObject = {"numNodes": nodes, "image": image, "command": command}
    if gpus:
        trainer["resourcesPerNode"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {
        "apiVersion": _TRAINER,
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": team},
        "spec": {"runtimeRef": {"name": runtime_name, "kind": "ClusterTrainingRuntime"}, "trainer": trainer, **spec},
    }


_REPLICAS: Final = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", "Master"),
    "TFJob": ("tfReplicaSpecs", "tensorflow", "Chief"),
}


def v1_job(kind: str, name: str, team: str, script: str, *, restarts: bool) -> JsonObject:
    """Build a job of `kubeflow.org/v1` with a worker besides its first replica."""
    replicas, container, first = _REPLICAS[kind]
    pod = {"containers": [{"name": container, "image": _IMAGE, "command": ["sh", "-c", script]}]}
    # With the policy ExitCode, 130 is a code that another try may mend.
    replica = {"replicas": 1, "restartPolicy": "ExitCode" if restarts else "Never", "template": {"spec": pod}}
    policy = {"backoffLimit": 2, "ttlSecondsAfterFinished": 60}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": team},
        "spec": {"runPolicy": policy, replicas: {first: replica, "Worker": replica}},
    }


LASTS: Final = 180.0
"""Seconds that the whole takes."""

_BURST_AT, _SLOW_AT, _SLOW_FOR, _KILL_AT = 30.0, 60.0, 30.0, 120.0
_BURST: Final = 60

_TRAINJOBS: Final = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"
_V1_JOBS: Final = "/apis/kubeflow.org/v1/namespaces/{}/{}"
_PATIENCE: Final = 60.0


class Load:
    """The load on a cluster that runs."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._random = random.Random(15)
        self._made = 0

    async def run(self) -> None:
        """Let it all happen."""
        await self._prepare()
        async with asyncio.TaskGroup() as tasks:
            for part in (self._steady(), self._special(), self._burst(), self._slow(), self._kill()):
                tasks.create_task(part)

    async def _prepare(self) -> None:
        for team in TEAMS:
            await self._create("/api/v1/namespaces", namespace(team))
        for name in RUNTIMES:
            await self._create("/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes", runtime(name))

    async def _steady(self) -> None:
        began = time.monotonic()
        while (now := time.monotonic() - began) < LASTS - 15:
            await self._submit(self._any_trainjob())
            if self._random.random() < 0.3:
                await self._submit(self._any_v1_job())
            await asyncio.sleep(max(0.0, 2.5 - (time.monotonic() - began - now)))
        await asyncio.sleep(15)

    async def _special(self) -> None:
        """Jobs of which there are a few only, and what people do with them."""
        await self._submit(trainjob("llm-pretrain", TEAMS[0], RUNTIMES[0], "sleep 300", nodes=2, gpus=4))
        await self._submit(trainjob("llm-too-large", TEAMS[0], RUNTIMES[0], "sleep 60", nodes=4, gpus=8))
        await self._submit(trainjob("wrong-image", TEAMS[1], RUNTIMES[2], "true", image="Example.com/No_Such/Image"))
        await self._submit(trainjob("runs-too-long", TEAMS[1], RUNTIMES[2], "sleep 300", activeDeadlineSeconds=45))
        await self._submit(trainjob("llm-finetune", TEAMS[0], RUNTIMES[2], "150 0", reports=True))
        for number in range(4):
            queued = trainjob(f"queued-{number}", TEAMS[1], RUNTIMES[0], "sleep 90", suspend=True)
            await self._submit(queued)
        for number in range(3):
            await asyncio.sleep(10)
            await self._suspend(TEAMS[1], f"queued-{number}", wanted=False)
        await asyncio.sleep(15)
        await self._suspend(TEAMS[0], "llm-pretrain", wanted=True)
        await asyncio.sleep(25)
        await self._suspend(TEAMS[0], "llm-pretrain", wanted=False)

    async def _burst(self) -> None:
        await asyncio.sleep(_BURST_AT)
        await for_all([self._any_trainjob() for _ in range(_BURST)], self._submit, at_once=8)
        await for_all([self._any_v1_job() for _ in range(_BURST // 5)], self._submit, at_once=4)

    async def _slow(self) -> None:
        await asyncio.sleep(_SLOW_AT)
        manager = "trainmaster"
        await self._running.inject({"type": "delay", "seconds": 1.2}, probability=0.5, user_agent=manager)
        await self._running.inject(
            {"type": "refuse", "code": 503}, probability=0.15, user_agent=manager, verb="create,update,patch"
        )
        # What is overloaded asks to come back later, and only then the same request is sent again.
        await self._running.inject(
            {"type": "refuse", "code": 429, "retry_after": 1}, probability=0.1, user_agent=manager
        )
        await asyncio.sleep(_SLOW_FOR)
        await self._running.heal()

    async def _kill(self) -> None:
        await asyncio.sleep(_KILL_AT)
        before = await self._running.holder()
        self._running.kill_first()
        deadline = time.monotonic() + _PATIENCE
        while await self._running.holder() in {"", before}:
            if time.monotonic() > deadline:
                raise BenchmarkFailed("the other manager did not take the lease")
            await asyncio.sleep(0.5)

    def _any_trainjob(self) -> JsonObject:
        self._made += 1
        chance = self._random.random()
        team, runtime_name = self._random.choice(TEAMS), self._random.choice(RUNTIMES)
        lasts = self._random.randint(5, 40)
        name = f"train-{self._made:03}"
        if chance < 0.12:
            # Kubernetes takes two dollars for one.
            ends = self._random.choice(("exit 1", "exit 1", "kill -9 $$$$", "exit 127"))
            fails = f"sleep {lasts // 3}; {ends}"
            if runtime_name == RESTARTING:
                # One node fails; the other one has something to save, and the pods tell of the failure meanwhile.
                waits = "trap 'sleep 3; exit 0' TERM; sleep 300 & wait"
                return trainjob(
                    name, team, runtime_name, f'[ "$JOB_COMPLETION_INDEX" = 1 ] || {{ {waits}; }}; {fails}', nodes=2
                )
            return trainjob(name, team, runtime_name, fails)
        if chance < 0.3:
            return trainjob(name, team, runtime_name, f"{lasts + 15} 0", reports=True)
        if chance < 0.34:
            return trainjob(f"odd-{name}", team, runtime_name, f"sleep {lasts}")
        gpus = self._random.choice((0, 0, 1, 2))
        return trainjob(name, team, runtime_name, f"sleep {lasts}", nodes=self._random.choice((1, 1, 2)), gpus=gpus)

    def _any_v1_job(self) -> JsonObject:
        self._made += 1
        kind, team = self._random.choice(("PyTorchJob", "PyTorchJob", "TFJob")), self._random.choice(TEAMS)
        chance, lasts = self._random.random(), self._random.randint(5, 25)
        ends = "exit 1" if chance < 0.2 else "exit 130" if chance < 0.35 else "true"
        return v1_job(kind, f"v1-{self._made:03}", team, f"sleep {lasts}; {ends}", restarts=ends == "exit 130")

    async def _submit(self, job: JsonObject) -> None:
        space = job["metadata"]["namespace"]
        kind = job["kind"]
        path = _TRAINJOBS.format(space) if kind == "TrainJob" else _V1_JOBS.format(space, f"{kind.lower()}s")
        await self._create(path, job)

    async def _create(self, path: str, obj: JsonObject) -> None:
        """Create an object; while no webhook answers, as after a failure of its manager, try again."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                await self._running.api.send("POST", path, obj, accept=(200, 201, 409))
            except BenchmarkFailed as error:
                if "webhook" not in str(error) or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(1)
            else:
                return

    async def _suspend(self, space: str, name: str, *, wanted: bool) -> None:
        path = f"{_TRAINJOBS.format(space)}/{name}"
        await self._running.api.send("PATCH", path, {"spec": {"suspend": wanted}}, content_type=MERGE_PATCH)
