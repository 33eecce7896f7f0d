"""No secret gets out of a manager: a whole one at debug level, with secrets everywhere, through successes and failures.

What it is given as secrets is looked for in all that it tells: standard output and error, a stack dump included,
events, conditions, metrics, probes, and every page below `/debug/`.
"""

import base64
import signal
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson
import pytest
import yaml
from support.authorities import Authority
from support.commands import Running, eventually, started
from support.devcluster.faults import Refuse, Reset
from support.processes import account_token
from support.stack import Stack, api_server
from support.training import runtime, trainjob, until

from trainmaster.controller.kube.rest.resources import SECRETS, Resource
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.jsontree import JsonObject

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(180)]

EVENTS = Resource("events.k8s.io", "v1", "Event", "events", namespaced=True)
PAGES = ("", "tasks", "threads", "cache", "queue", "plugins", "leader", "configuration", "profile?seconds=0.2")

FAILING = """
class Failing:
    name = "failing"
    def __init__(self, *, password):
        self.password = password
    def build(self, info, job, listers):
        password = self.password
        if job.metadata.name == "fails":
            token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2lnbmVkLWJ5LWEtcGx1Z2lu"
            raise RuntimeError(f"out of {len(password)} ideas: {token}")
        return []
"""
"""A plugin that is given a secret as an option, and fails with it in a variable and with a token in its words."""


@dataclass
class Canaries:
    """The secrets, by what they are."""

    values: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, value: str) -> str:
        """Note a secret; what is encoded is looked for in both forms."""
        assert len(value) >= 12, what
        self.values[what] = value
        with suppress(ValueError):
            text = base64.b64decode(value, validate=True).decode()
            self.values |= {f"{what}, line {n}": line for n, line in enumerate(text.splitlines()) if is_telling(line)}
        return value

    def found_in(self, text: str) -> set[str]:
        """Return which of them are in a text."""
        return {what for what, value in self.values.items() if value in text}


def is_telling(line: str) -> bool:
    """Whether a line of a key is more than its frame."""
    return len(line) >= 12 and not line.startswith("-----")


@dataclass
class Told:
    """A manager, and all that it tells."""

    running: Running
    ports: dict[str, int]
    token: str
    answers: list[str] = field(default_factory=list)

    async def ask(self, server: str, path: str, *, token: str | None = None, body: bytes | None = None) -> int:
        """Send a request to one of its servers; returns the status."""
        plain = server in {"health", "metrics"}
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        url = f"{'http' if plain else 'https'}://127.0.0.1:{self.ports[server]}{path}"
        method = "GET" if body is None else "POST"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, data=body, ssl=context) as answer,
        ):
            text = await answer.text()
        if plain:
            self.answers.append(f"{path}\n{text}")  # others answer to who knows what was sent
        return answer.status

    async def ready(self) -> None:
        """Wait until it is ready."""

        async def is_ready() -> bool:
            assert self.running.process.returncode is None, self.running.err
            with suppress(aiohttp.ClientConnectorError):
                return await self.ask("health", "/readyz") == 200
            return False

        await eventually(is_ready)

    def said(self, *parts: str) -> bool:
        """Tell whether there is a line with all of these."""
        return any(all(part in line for part in parts) for line in self.running.err)


@asynccontextmanager
async def telling(stack: Stack, directory: Path, canaries: Canaries) -> AsyncIterator[Told]:
    """Run a manager that has secrets and tells as much as it can."""
    ports = {name: free_port() for name in ("health", "metrics", "webhooks", "status")}
    certificates = directory / "certs"
    Authority().mount(certificates)
    canaries.add("key of the servers", base64.b64encode((certificates / "tls.key").read_bytes()).decode())
    token = canaries.add("token of the manager", await account_token(stack.client, "manager"))
    canaries.add("signature of the token", token.rpartition(".")[2])
    canaries.add("signature of the token of a plugin", "c2lnbmVkLWJ5LWEtcGx1Z2lu")
    kubeconfig = yaml.safe_load(next(directory.rglob("kubeconfig")).read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    (directory / "manager.kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    (directory / "failing.py").write_text(FAILING)
    (directory / "failing-1.dist-info").mkdir()
    (directory / "failing-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: failing\nVersion: 1\n")
    (directory / "failing-1.dist-info/entry_points.txt").write_text(
        "[trainmaster.plugins]\nfailing = failing:Failing\n"
    )
    configuration = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "webhook": {"host": "127.0.0.1", "port": ports["webhooks"], "certDir": str(certificates)},
        "certManagement": {"enable": False},
        "metrics": {"bindAddress": f"127.0.0.1:{ports['metrics']}", "secureServing": False, "auth": {"enabled": True}},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['health']}"},
        "statusServer": {"port": ports["status"]},
        "leaderElection": {"leaderElect": True, "resourceNamespace": "default"},
        "featureGates": {"TrainJobStatus": True},
        "plugins": {"options": {"failing": {"password": canaries.add("option of a plugin", "canary-plugin-option")}}},
        "enableDebuggingHandlers": True,
        "shutdownDelayDuration": "0s",
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(configuration))
    async with started(
        *("manager", "--config", "config.yaml", "--kubeconfig", "manager.kubeconfig", "--zap-log-level", "debug"),
        cwd=directory,
        PYTHONPATH=str(directory),
        AWS_SECRET_ACCESS_KEY=canaries.add("environment of the manager", "canary-of-the-environment"),
    ) as running:
        yield Told(running, ports, token)


def mpi_runtime() -> JsonObject:
    made = runtime("mpi")
    made["metadata"]["labels"] = {"trainer.kubeflow.org/framework": "mpi"}
    made["spec"]["mlPolicy"] = {"numNodes": 1, "mpi": {"mpiImplementation": "OpenMPI"}}
    jobs = made["spec"]["template"]["spec"]["replicatedJobs"]
    launcher = orjson.loads(orjson.dumps(jobs[0])) | {"name": "launcher"}
    made["spec"]["template"]["spec"]["replicatedJobs"] = [launcher, *jobs]
    return made


def with_secrets(name: str, canaries: Canaries, *, on: str = "processes") -> JsonObject:
    """A TrainJob whose author writes a secret where nobody should."""
    variable = canaries.add("environment of a TrainJob", "canary-in-the-environment")
    job = trainjob(name, on=on, trainer={"env": [{"name": "TOKEN", "value": variable}]})
    job["metadata"]["annotations"] = {"token": canaries.add("annotation of a TrainJob", "canary-in-an-annotation")}
    return job


@pytest.mark.guarantee("M-11")
async def test_no_secret_gets_out_whatever_happens(tmp_path: Path) -> None:
    canaries = Canaries()
    async with api_server(tmp_path) as stack, telling(stack, tmp_path, canaries) as told:
        assert stack.cluster is not None
        faults = stack.cluster.faults
        for each in (runtime(), mpi_runtime()):
            await stack.client.create(CLUSTER_TRAINING_RUNTIMES, each)
        await told.ready()

        # Refusals that quote what they refuse, and connections that break.
        quoted = f"no: Bearer {told.token} {told.token}"
        for code in (403, 409, 422, 500):
            faults.add(Refuse(code, reason="Invalid" if code == 422 else "", message=quoted), user_agent="trainmaster/",
                       verb="patch", resource="jobsets", times=1)  # fmt: skip
        faults.add(
            Refuse(422, reason="Invalid", message=quoted), user_agent="trainmaster/", resource="secrets", times=2
        )
        faults.add(Refuse(500, message=quoted), user_agent="trainmaster/", verb="create", resource="events", times=2)
        faults.add(Reset("after"), user_agent="trainmaster/", verb="patch", subresource="status", times=1)
        faults.add(Refuse(500, message=quoted), user_agent="leader-election", verb="update", times=1)

        # Jobs that become something, that cannot, that meet a Secret of somebody else, and that fail in a plugin.
        foreign = {"key": canaries.add("a Secret of somebody else", base64.b64encode(b"canary-of-somebody").decode())}
        metadata = {"name": "taken-mpi-ssh-auth", "namespace": "default"}
        await stack.client.create(
            SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": foreign}
        )
        await stack.client.create(TRAINJOBS, with_secrets("plain", canaries))
        for name in ("hosts", "taken"):
            await stack.client.create(TRAINJOBS, with_secrets(name, canaries, on="mpi"))
        await stack.client.create(TRAINJOBS, with_secrets("fails", canaries))
        await stack.client.create(TRAINJOBS, with_secrets("lost", canaries, on="nowhere"))
        await eventually(lambda: told.said("applied", '"object": "plain"'))
        await eventually(lambda: told.said("NameTaken") and told.said("ideas") and told.said("nowhere"))
        key = await until(lambda: key_of(stack, "hosts"))
        for name, value in key["data"].items():
            if "public" not in name:
                canaries.add(f"{name} of a job", value)

        # Requests that are refused: reviews, reports, and readers of metrics.
        garbage = canaries.add("a review that is none", '{"request": "canary-in-a-review')
        assert (
            await told.ask("webhooks", "/validate-trainer-kubeflow-org-v1alpha1-trainjob", body=garbage.encode()) == 200
        )
        canaries.values["a review that is none"] = "canary-in-a-review"
        forged = canaries.add("a forged token", "canary-forged-token.0123456789.abc")
        report = orjson.dumps({"trainerStatus": canaries.add("a report", "canary-in-a-report")})
        path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/plain/status"
        for token in (forged, told.token):
            assert await told.ask("status", path, token=token, body=report) >= 400
        faults.add(Refuse(500, message=f"cannot review {forged}"), resource="tokenreviews", times=1)
        assert await told.ask("metrics", "/metrics", token=forged) in {401, 500}
        faults.clear()

        # Everything it tells.
        for page in PAGES:
            assert await told.ask("metrics", f"/debug/{page}", token=told.token) == 200, page
        for job in ("plain", "hosts", "fails"):
            assert await told.ask("metrics", f"/debug/cache?key=default/{job}", token=told.token) == 200
        assert await told.ask("metrics", f"/debug/cache?key=default/{key['metadata']['name']}", token=told.token) == 404
        for probe in ("/healthz?verbose", "/readyz?verbose"):
            assert await told.ask("health", probe) == 200
        assert await told.ask("metrics", "/metrics", token=told.token) == 200
        metrics = told.answers[-1]
        told.running.process.send_signal(signal.SIGUSR1)
        await eventually(lambda: told.said("Stacks of tasks"))
        told.running.process.terminate()
        finished = await told.running.finish()
        events = (await stack.client.list(EVENTS, "default"))["items"]
        jobs = (await stack.client.list(TRAINJOBS, "default"))["items"]

    assert finished.code == 0, finished.err
    statuses = [job["status"] for job in jobs if "status" in job]
    assert len(statuses) >= 3
    assert len(events) >= 2
    for what, texts in {
        "log": [finished.out, finished.err],
        "events": [str(each) for each in events],
        "conditions": [str(each) for each in statuses],
        "answers": told.answers,
    }.items():
        assert canaries.found_in("\n".join(texts)) == set(), what
    assert finished.err.count("[redacted]") >= 4, "nobody quoted a secret, so nothing was proved"
    assert "Traceback" in finished.err or "RuntimeError" in finished.err
    assert [job["metadata"]["name"] for job in jobs if f'"{job["metadata"]["name"]}"' in metrics] == []
    levels = {orjson.loads(line)["level"] for line in json_lines(finished.err)}
    assert {"debug", "info", "warn"} <= levels


async def key_of(stack: Stack, job: str) -> JsonObject | None:
    """The Secret that a TrainJob got, as soon as there is one."""
    items = (await stack.client.list(SECRETS, "default"))["items"]
    return next((each for each in items if each["metadata"]["name"].startswith(f"{job}-")), None)


def json_lines(text: str) -> Iterable[str]:
    """The lines that are not of the stack dump."""
    return (line for line in text.splitlines() if line.startswith("{"))
