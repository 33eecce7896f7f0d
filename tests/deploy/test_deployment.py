"""What `kubectl kustomize deploy/overlays/ha` renders, applied to a cluster that enforces roles: two replicas, started
by the kubelet with their own arguments, account, configuration and certificates; webhooks through their Service."""

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio
from support.admission import requests_to
from support.commands import client_of, trainmaster
from support.deployed import ACCOUNT, NAMESPACE, Deployed, deployed, rendered
from support.manifests import ROOT
from support.stack import Stack
from support.steadyreviews import RATE, SteadyReviews
from support.training import RENDEZVOUS, python, runtime, trainjob

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.resources import PODS, SECRETS
from trainmaster.controller.resources import JOBSETS, TRAINJOBS

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("told"),
]

EXAMPLES = ["numpy-digits", "plain-sweep"]
"""With the policy of a framework and with none. The other frameworks train in the tests of the examples; of a deployed
manager they need no more than the built-in runtimes do."""

WAIT = """
import os, pathlib, time
while not pathlib.Path(os.environ["GATE"]).exists():
    time.sleep(0.05)
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployed]:
    async with deployed(tmp_path_factory.mktemp("deploy"), rendered("ha")) as running:
        await running.apply(rendered("runtimes"))
        await running.create(runtime())
        yield running


async def test_the_replicas_are_what_the_manifests_say(cluster: Deployed) -> None:
    pods = await cluster.pods()
    assert len(pods) == 2
    for pod in pods:
        name = pod["metadata"]["name"]
        command = Path(f"/proc/{cluster.process_of(name)}/cmdline").read_bytes().split(b"\0")[1:]
        assert command[-3:-1] == [b"manager", b"--config=/etc/kubeflow-trainer"]
        (started,) = await cluster.events(name, "starting")
        assert started["configuration"] == "/etc/kubeflow-trainer"
        assert started["namespace"] == NAMESPACE
        assert "service account" in started["credentials"]
    assert await cluster.ready_endpoints() == 2
    assert (await cluster.holder()).startswith(tuple(pod["metadata"]["name"] for pod in pods))


async def test_top_tells_which_replica_leads(cluster: Deployed) -> None:
    done = await trainmaster("top", "-o", "json", "--kubeconfig", str(cluster.kubeconfig), cwd=cluster.home)
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    holder = await cluster.holder()
    assert {each["name"] for each in told["managers"]} == {pod["metadata"]["name"] for pod in await cluster.pods()}
    assert [holder.startswith(each["name"]) for each in told["managers"]] == [True, False]
    assert [(each["leads"], each["ready"]) for each in told["managers"]] == [(True, True), (False, True)]
    assert told["managersNote"] == ""


def runbook_commands() -> list[str]:
    """The commands of kubectl that look at an installation; what is behind a pipe picks from their output."""
    page = (ROOT / "docs/runbooks/README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = {re.split(r" [|>] ", line)[0] for block in blocks for line in block.splitlines()}
    elsewhere = re.compile(
        r"NAMESPACE|needed\.yaml|port-forward|exec"  # about one job or a file, or into a container
        r"|kubectl .*top |servicemonitor|get certificates|apiservices|get --raw /metrics"  # not in this cluster
    )
    return sorted(line for line in lines if line.startswith("kubectl ") and not elsewhere.search(line))


async def test_the_commands_of_runbooks_look_at_what_is_there(cluster: Deployed) -> None:
    commands = runbook_commands()
    assert len(commands) > 25
    answers = {command: await cluster.kubectl(*shlex.split(command)[1:]) for command in commands}
    assert [answer.strip() for command, answer in answers.items() if " auth can-i " in command] == ["yes"]
    pods = {pod["metadata"]["name"] for pod in await cluster.pods()}
    for command, answer in answers.items():
        if "component=manager" in command and " get pods" in command:
            assert all(pod in answer for pod in pods), command
        if " logs " in command:
            assert all(f"[pod/{pod}/" in answer for pod in pods), command


async def test_webhooks_are_called_through_the_service(cluster: Deployed) -> None:
    refused = await cluster.kubectl("create", "-f", "-", stdin=json.dumps(trainjob("a", on="absent")), check=False)
    assert 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request' in refused
    made = json.loads(
        await cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(trainjob("a")))
    )
    assert made["spec"]["managedBy"] == "trainer.kubeflow.org/trainjob-controller"


@pytest.mark.parametrize("example", EXAMPLES)
async def test_a_trainjob_of_each_kind_completes(cluster: Deployed, example: str) -> None:
    if find_spec("sklearn") is None:
        pytest.skip("scikit-learn, which has the data, is not installed")
    await cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "examples" / example))
    names = [
        job["metadata"]["name"]
        for job in await cluster.items(TRAINJOBS)
        if job["spec"]["runtimeRef"]["name"] == example
    ]
    assert names
    await cluster.completed(*names)


@pytest.mark.parametrize("kind", ["torch-distributed", "jax-distributed", "xgboost-distributed"])
async def test_a_built_in_runtime_runs_several_nodes(cluster: Deployed, kind: str) -> None:
    """The framework itself is not needed: the program prints what it was given to find the others."""
    address = {
        "torch-distributed": "PET_MASTER_ADDR",
        "jax-distributed": "JAX_COORDINATOR_ADDRESS",
        "xgboost-distributed": "DMLC_TRACKER_URI",
    }[kind]
    show = f"import os, socket; print(socket.gethostbyname(os.environ['{address}'].partition(':')[0]))"
    await cluster.create(trainjob(kind, on=kind, trainer={"numNodes": 2, "command": python(show)}))
    await cluster.completed(kind)
    logs = await cluster.kubectl("logs", "-l", f"jobset.sigs.k8s.io/jobset-name={kind}", "--tail=-1")
    first, second = logs.split()
    assert first == second
    assert first.startswith("127.")


async def test_nodes_of_a_job_meet(cluster: Deployed) -> None:
    trainer = {"numNodes": 3, "command": python(RENDEZVOUS), "env": [{"name": "JOB", "value": "meet"}]}
    await cluster.create(trainjob("meet", trainer=trainer))
    await cluster.completed("meet")


async def stop_by_signal(cluster: Deployed, pod: str) -> None:
    cluster.kill(pod)


async def stop_by_deletion(cluster: Deployed, pod: str) -> None:
    await cluster.kubectl("delete", "pod", pod, "-n", NAMESPACE, "--wait=false")


async def stop_by_force(cluster: Deployed, pod: str) -> None:
    await cluster.kubectl("delete", "pod", pod, "-n", NAMESPACE, "--force", "--grace-period=0")


@pytest.mark.parametrize("stop", [stop_by_signal, stop_by_deletion, stop_by_force], ids=["SIGKILL", "delete", "force"])
async def test_the_end_of_the_leading_pod_loses_nothing(
    cluster: Deployed,
    stop: Callable[[Deployed, str], Awaitable[None]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    prefix, gate = request.node.callspec.id.lower(), tmp_path / "gate"
    trainer = {"numNodes": 2, "command": python(WAIT), "env": [{"name": "GATE", "value": str(gate)}]}

    async def submit(*names: str) -> list[str]:
        await cluster.create(*(trainjob(name, trainer=trainer) for name in names))
        return list(names)

    names = await submit(*(f"{prefix}-{number}" for number in range(4)))
    async with asyncio.timeout(90):
        while len(await running_pods(cluster, prefix)) < 8:
            await asyncio.sleep(0.1)
    before = await uids(cluster, prefix)
    leader = await cluster.holder()
    await stop(cluster, leader.partition("_")[0])
    took = await cluster.another_leads(leader)
    await cluster.rolled_out()
    async with asyncio.timeout(60):
        while await cluster.ready_endpoints() < 2:
            await asyncio.sleep(0.1)
    names += await submit(f"{prefix}-late-1", f"{prefix}-late-2")
    gate.touch()
    await cluster.completed(*names)
    assert before.items() <= (await uids(cluster, prefix)).items(), "no JobSet is made anew"
    made = [
        asked
        for asked in cluster.asked()
        if asked.resource == "jobsets" and asked.name.startswith(prefix) and not asked.subresource
    ]
    assert {asked.user for asked in made if asked.verb in {"create", "delete"}} <= {ACCOUNT}
    assert not [asked for asked in made if asked.verb == "delete"]
    record_property("measured", f"{request.node.callspec.id}: another replica led after {took:.1f} s")


async def running_pods(cluster: Deployed, prefix: str) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in await cluster.items(PODS)
        if pod["metadata"]["name"].startswith(prefix) and pod["status"].get("phase") == "Running"
    ]


async def uids(cluster: Deployed, prefix: str) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["metadata"]["uid"]
        for each in await cluster.items(JOBSETS)
        if each["metadata"]["name"].startswith(prefix)
    }


@pytest.mark.guarantee("M-7")
async def test_a_rolling_update_of_both_replicas_under_fifty_reviews_a_second_refuses_none(
    cluster: Deployed, record_property: Callable[[str, object], None]
) -> None:
    before = {pod["metadata"]["uid"] for pod in await cluster.pods()}
    access = await load_config(kubeconfig=str(cluster.kubeconfig))
    async with client_of(cluster.kubeconfig) as client, requests_to(Stack(access, client, None)) as requests:
        reviews = SteadyReviews(requests)
        sending = asyncio.create_task(reviews.send())
        await cluster.kubectl("rollout", "restart", "deployment", "-n", NAMESPACE)
        await cluster.rolled_out()
        await ended(cluster, before)
        sending.cancel()
        await sending
    assert reviews.refused == []
    assert reviews.sent > 5 * RATE
    record_property("measured", f"rolling update: {reviews.sent} reviews, none refused")


@pytest.mark.guarantee("H-11")
@pytest.mark.parametrize("lost", [["tls.crt", "tls.key"], ["ca.crt", "ca.key", "tls.crt", "tls.key"]])
async def test_new_certificates_of_both_replicas_under_fifty_reviews_a_second_refuse_none(
    cluster: Deployed, lost: list[str], record_property: Callable[[str, object], None]
) -> None:
    """The serving pair, and then the authority as well, as if somebody had emptied the Secret."""
    pods = [pod["metadata"]["name"] for pod in await cluster.pods()]
    access = await load_config(kubeconfig=str(cluster.kubeconfig))

    async def taken_up() -> list[int]:
        return [len(await cluster.events(pod, "a new certificate is served")) for pod in pods]

    async with client_of(cluster.kubeconfig) as client, requests_to(Stack(access, client, None)) as requests:
        reviews = SteadyReviews(requests)
        before = await taken_up()
        sending = asyncio.create_task(reviews.send())
        patch = {"data": dict.fromkeys(lost)}
        await client.patch(SECRETS, NAMESPACE, "kubeflow-trainer-webhook-cert", patch)
        async with asyncio.timeout(90):
            while not all(now > then for now, then in zip(await taken_up(), before, strict=True)):
                await asyncio.sleep(0.2)
            enough = reviews.sent + 2 * RATE
            while reviews.sent < enough:
                await asyncio.sleep(0.1)
        sending.cancel()
        await sending
    assert reviews.refused == []
    record_property("measured", f"new certificates, {' '.join(lost)}: {reviews.sent} reviews, none refused")


async def ended(cluster: Deployed, uids: set[str]) -> None:
    """Wait until pods are gone."""
    async with asyncio.timeout(90):
        while uids & {pod["metadata"]["uid"] for pod in await cluster.items(PODS, namespace=NAMESPACE)}:
            await asyncio.sleep(0.1)


async def test_the_role_grants_all_that_the_managers_ask_for(cluster: Deployed) -> None:
    """Last, so that it has seen what the tests before it caused."""
    asked = [each for each in cluster.asked() if each.user == ACCOUNT]
    assert {"leases", "jobsets", "trainjobs"} <= {each.resource for each in asked}
    assert {(each.verb, each.resource, each.subresource) for each in asked if each.code == 403} == set()
