"""What users do first, from end to end: real programs, on one embedded cluster that all tests of the gate share.

The tests say what happens, and never how fast: they pass on a machine that has no core free. A wait that ends by its
time is a hang.
"""

import json
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from support.commands import TIMEOUT, Finished, client_of, processes_of, trainmaster
from support.distributions import EXAMPLES, install
from support.embedded import embedded
from support.golden import POD_GROUPS
from support.kubectl import Kubectl
from support.rights import declare
from support.training import (
    RENDEZVOUS,
    apply_runtime,
    conditions,
    conditions_of,
    ended,
    found,
    log_of,
    logs,
    pods,
    python,
    runtime,
    trainjob,
    until,
)

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS, TRAINJOBS
from trainmaster.devcluster.cluster import NODE_NAME
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

JOBS = Resource("batch", "v1", "Job", "jobs", namespaced=True)
NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
PYTORCHJOBS = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True)
EXAMPLE = EXAMPLES / "plugins/indexed-job"


@pytest.fixture(scope="session")
def site_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example plugin `indexed-job` is installed, for programs of which this is the PYTHONPATH."""
    directory = tmp_path_factory.mktemp("site-packages")
    install(EXAMPLE, directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(directory))
        watches = Framework(load_plugins()).watches()
        declare(policy_rules(Configuration(), features=(), watches=watches, namespace="kubeflow"))
    return directory


@pytest.fixture(scope="session")
def cluster_home(site_packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cluster of this directory: as everybody's, but its manager has the example plugin."""
    with embedded(tmp_path_factory.mktemp("cluster"), PYTHONPATH=str(site_packages)) as home:
        yield home


@pytest.fixture
def kubeconfig(cluster_home: Path) -> str:
    return str(cluster_home / ".trainmaster" / "kubeconfig")


@pytest.fixture
async def client(kubeconfig: str) -> AsyncIterator[KubeClient]:
    async with client_of(kubeconfig) as client:
        await apply_runtime(client, runtime())
        yield client


@pytest.fixture
def cli(kubeconfig: str, tmp_path: Path) -> Callable[..., Any]:
    """A function that runs a command against the cluster; it must end with a code, 0 by default."""

    async def run(*words: str, code: int = 0, **environment: str) -> Finished:
        done = await trainmaster(*words, cwd=tmp_path, KUBECONFIG=kubeconfig, **environment)
        assert done.code == code, done.err
        return done

    return run


def rendezvous(name: str, nodes: int) -> JsonObject:
    """A trainer whose nodes meet; the first one prints who came."""
    return {"numNodes": nodes, "command": python(RENDEZVOUS), "env": [{"name": "JOB", "value": name}]}


def waiting_for(gate: Path, then: str = "") -> list[str]:
    """A command that waits until a file is there."""
    return python(f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.02)\n{then}")


async def test_the_ranks_of_a_job_meet_and_it_completes(client: KubeClient) -> None:
    await client.create(TRAINJOBS, trainjob("meets", trainer=rendezvous("meets", 3)))
    condition = await ended(client, "meets")
    assert (condition["type"], condition["reason"]) == ("Complete", "AllJobsCompleted")
    assert await logs(client, "meets") == ["", "", "met [b'meets-1', b'meets-2']\n"]
    (status,) = (await client.get(TRAINJOBS, "default", "meets"))["status"]["jobsStatus"]
    assert (status["name"], status["succeeded"], status["failed"]) == ("node", 1, 0)


async def test_explain_finds_why_a_job_failed(client: KubeClient, cli: Callable[..., Any]) -> None:
    script = "import os, time\nif os.environ['PET_NODE_RANK'] != '1': time.sleep(600)\nraise ValueError('loss is NaN')"
    await client.create(TRAINJOBS, trainjob("fails", trainer={"numNodes": 2, "command": python(script)}))
    condition = await ended(client, "fails")
    assert (condition["type"], condition["reason"]) == ("Failed", "FailedJobs")
    assert "first failed job: fails-node-0" in condition["message"]
    first, *_ = json.loads((await cli("explain", "fails", "-o", "json")).out)["causes"]
    assert first["cause"] == "ContainerFailed"
    evidence = "\n".join(each["text"] for each in first["evidence"])
    assert "rank 1: container node failed with exit code 1" in evidence
    assert "trainmaster logs fails" in "\n".join(first["whatNext"])


async def test_suspended_it_stops_and_resumed_it_runs_to_its_end(client: KubeClient, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await client.create(TRAINJOBS, trainjob("pauses", trainer={"command": waiting_for(gate)}))

    async def runs() -> bool:
        return [pod["status"].get("phase") for pod in await pods(client, "pauses")] == ["Running"]

    async def stopped() -> bool:
        return not await pods(client, "pauses") and "Suspended" in await conditions(client, "pauses")

    await until(runs)
    await client.patch(TRAINJOBS, "default", "pauses", {"spec": {"suspend": True}})
    await until(stopped)
    await client.patch(TRAINJOBS, "default", "pauses", {"spec": {"suspend": False}})
    await until(runs)
    gate.touch()
    assert (await ended(client, "pauses"))["type"] == "Complete"
    assert "Suspended" not in await conditions(client, "pauses")


async def test_a_gang_starts_as_a_whole_or_not_at_all(client: KubeClient) -> None:
    """Each pod of the second one would fit, all together do not."""
    on = runtime("gang")
    on["spec"]["podGroupPolicy"] = {"coscheduling": {}}
    (node,) = on["spec"]["template"]["spec"]["replicatedJobs"]
    node["template"]["spec"]["template"]["spec"]["schedulerName"] = "scheduler-plugins-scheduler"
    await apply_runtime(client, on)
    await client.create(TRAINJOBS, trainjob("fits", on="gang", trainer=rendezvous("fits", 2)))
    memory = (await client.get(NODES, None, NODE_NAME))["status"]["allocatable"]["memory"]
    requests = {"memory": f"{int(memory.removesuffix('Ki')) * 2 // 5}Ki"}
    trainer = {"numNodes": 3, "resourcesPerNode": {"requests": requests}}
    await client.create(TRAINJOBS, trainjob("too-wide", on="gang", trainer=trainer))

    async def unschedulable() -> list[JsonObject]:
        there = await pods(client, "too-wide")
        reasons = [each.get("reason") for pod in there for each in pod["status"].get("conditions", [])]
        return there if reasons.count("Unschedulable") == 3 else []

    async def is_finished() -> bool:
        return bool((await client.get(POD_GROUPS, "default", "fits")).get("status", {}).get("phase") == "Finished")

    assert [pod["spec"].get("nodeName") for pod in await until(unschedulable)] == [None] * 3
    assert (await ended(client, "fits"))["type"] == "Complete"
    assert (await client.get(POD_GROUPS, "default", "fits"))["spec"]["minMember"] == 2
    await until(is_finished)
    await client.delete(TRAINJOBS, "default", "too-wide")


async def test_a_pytorchjob_from_its_creation_to_its_end(client: KubeClient, tmp_path: Path) -> None:
    """The Training Operator's API: a master and two workers, which find it by its name."""
    gate = tmp_path / "gate"
    show = "print(*(os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')))"

    def replicas(count: int) -> JsonObject:
        container = {"name": "pytorch", "image": "none", "command": waiting_for(gate, show)}
        template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
        return {"replicas": count, "restartPolicy": "Never", "template": template}

    spec = {"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(2)}}
    head = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    await client.create(PYTORCHJOBS, {**head, "metadata": {"name": "old", "namespace": "default"}, "spec": spec})

    async def all_run() -> bool:
        job = await client.get(PYTORCHJOBS, "default", "old")
        counts = (job.get("status") or {}).get("replicaStatuses", {})
        active = {kind: each.get("active") for kind, each in counts.items()}
        return "Running" in conditions_of(job) and active == {"Master": 1, "Worker": 2}

    async def succeeded() -> JsonObject | None:
        return conditions_of(await client.get(PYTORCHJOBS, "default", "old")).get("Succeeded")

    await until(all_run)
    gate.touch()
    assert (await until(succeeded))["message"] == "PyTorchJob old is successfully completed."
    names = ("old-master-0", "old-worker-0", "old-worker-1")
    assert [(await log_of(client, name, container="pytorch")).split() for name in names] == [
        [str(rank), "3", "old-master-0", "23456"] for rank in range(3)
    ]


async def test_a_plugin_trains_with_a_job_in_place_of_a_jobset(
    client: KubeClient, cli: Callable[..., Any], site_packages: Path
) -> None:
    """The example, with its own runtime and TrainJob: the manager loads it, and so does the command line."""
    files = [EXAMPLE / name for name in ("runtime.yaml", "trainjob.yaml")]
    on, job = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in files)
    await client.create(CLUSTER_TRAINING_RUNTIMES, on)
    await client.create(TRAINJOBS, job)
    assert (await ended(client, "plain"))["type"] == "Complete"
    assert (await client.get(JOBS, "default", "plain-node-0"))["status"]["succeeded"] == 2
    assert await found(client, JOBSETS, "plain") is None
    assert await logs(client, "plain") == ["", "trained with rank 1\n"]
    arguments = [word for file in files for word in ("-f", str(file))]
    rendered = (await cli("render", *arguments, PYTHONPATH=str(site_packages))).out
    assert [each["kind"] for each in yaml.safe_load_all(rendered)] == ["ConfigMap", "Service", "Job"]


async def test_files_are_validated_and_rendered_without_a_cluster(cli: Callable[..., Any], tmp_path: Path) -> None:
    wrong = trainjob("wrong", on="torch-distributed", trainer={"numNode": 3, "numNodes": 0})
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong, sort_keys=False))
    (tmp_path / "right.yaml").write_text(yaml.safe_dump(trainjob("right", on="torch-distributed")))
    refused = await cli("validate", "-f", "wrong.yaml", code=1)
    unknown, zero = refused.out.splitlines()
    assert unknown == (
        'wrong.yaml:10:5: error: TrainJob wrong: spec.trainer.numNode: unknown field (did you mean "numNodes"?)'
    )
    assert zero.startswith("wrong.yaml:11:5: error: TrainJob wrong: spec.trainer.numNodes: Invalid value: 0: ")
    assert refused.err == "trainmaster: 1 object checked, 2 errors, 0 warnings\n"
    assert (await cli("validate", "-f", "right.yaml")).out == ""
    rendered = list(yaml.safe_load_all((await cli("render", "-f", "right.yaml")).out))
    assert [(each["kind"], each["metadata"]["name"]) for each in rendered] == [
        ("ConfigMap", "right-runtime-snapshot"),
        ("JobSet", "right"),
    ]


async def test_a_script_is_run_listed_and_its_logs_are_read(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, sys\nprint('rank', os.environ['PET_NODE_RANK'], *sys.argv[1:])\n")
    ran = await cli("run", "train.py", "--nodes", "2", "--name", "by-script", "--", "--lr", "0.1")
    assert ran.out == "rank 0 --lr 0.1\n"
    assert "TrainJob default/by-script created\n" in ran.err
    assert re.search(r"^TrainJob default/by-script: Complete after ", ran.err, re.MULTILINE)
    rows = [line.split() for line in (await cli("list")).out.splitlines()]
    assert rows[0][:6] == ["KIND", "NAME", "STATE", "CAUSE", "NODES", "RESTARTS"]
    assert ["TrainJob", "by-script", "Complete", "-", "2", "0"] in [row[:6] for row in rows]
    assert sorted((await cli("logs", "by-script", "--all")).out.splitlines()) == [
        f"rank {rank} | rank {rank} --lr 0.1" for rank in range(2)
    ]


async def test_deleted_it_takes_everything_along(client: KubeClient, cli: Callable[..., Any]) -> None:
    marker = "runs-until-its-trainjob-is-deleted"
    command = python(f"import time; time.sleep(600) # {marker}")
    await client.create(TRAINJOBS, trainjob("short-lived", trainer={"numNodes": 2, "command": command}))

    async def run() -> bool:
        return len(await pods(client, "short-lived")) == 2 and len(processes_of(marker)) >= 2

    async def gone() -> bool:
        left = await pods(client, "short-lived") or processes_of(marker)
        return not left and await found(client, JOBSETS, "short-lived") is None

    await until(run)
    await cli("delete", "short-lived")
    await until(gone)
    assert await found(client, TRAINJOBS, "short-lived") is None


async def test_a_wrong_trainjob_is_refused_with_its_field(client: KubeClient) -> None:
    """By the webhooks of the manager, which the API server calls."""
    with pytest.raises(Forbidden) as refused:
        await client.create(TRAINJOBS, trainjob("nowhere", on="absent"))
    assert 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: spec.RuntimeRef: ' in str(
        refused.value
    )
    assert "specified clusterTrainingRuntime must be created before the TrainJob is created" in str(refused.value)
    reserved = {"command": ["true"], "env": [{"name": "PET_NNODES", "value": "3"}]}
    with pytest.raises(Forbidden, match=r"spec\.trainer\.env: Invalid value: .*PET_NNODES"):
        await client.create(TRAINJOBS, trainjob("reserved", trainer=reserved))


def greet(text: str) -> None:
    """What a user of the SDK trains with: sent to the nodes as source, so it imports what it needs."""
    import os  # noqa: PLC0415 - see above

    print("node", os.environ["JOB_COMPLETION_INDEX"], "of", text, flush=True)  # noqa: T201


@pytest.fixture
async def plain(client: KubeClient) -> str:
    """A runtime of which the SDK runs Python, in place of torchrun."""
    obj = runtime("plain")
    obj["metadata"]["labels"]["trainer.kubeflow.org/framework"] = "plain"
    obj["spec"]["mlPolicy"] = {"numNodes": 1}
    await apply_runtime(client, obj)
    return "plain"


def test_the_sdk_of_kubeflow_trains(kubeconfig: str, plain: str) -> None:
    trainer = pytest.importorskip("kubeflow.trainer", reason="`kubeflow` is not installed; `make test` installs it")
    sdk = trainer.TrainerClient(trainer.KubernetesBackendConfig(config_file=kubeconfig, namespace="default"))
    function = trainer.CustomTrainer(func=greet, func_args={"text": "two"}, num_nodes=2)
    name = sdk.train(runtime=plain, trainer=function)
    done = sdk.wait_for_job_status(name, timeout=TIMEOUT, polling_interval=1)
    assert (done.status, done.num_nodes) == ("Complete", 2)
    assert {step.name: step.status for step in done.steps} == {"node-0": "Succeeded", "node-1": "Succeeded"}
    for node in (0, 1):
        assert list(sdk.get_job_logs(name, step=f"node-{node}")) == [f"node {node} of two"]
    assert sdk.list_jobs(runtime=done.runtime) == [done]
    sdk.delete_job(name)
    with pytest.raises(RuntimeError, match=name):
        sdk.get_job(name)
    sdk.backend.core_api.api_client.close()


def test_the_official_client_of_kubernetes_sees_a_trainjob_to_its_end(client: KubeClient, kubeconfig: str) -> None:
    kubernetes = pytest.importorskip("kubernetes", reason="`kubernetes` is not installed; `make test` installs it")
    trainjobs = {"group": "trainer.kubeflow.org", "version": "v1alpha1", "namespace": "default", "plural": "trainjobs"}
    with kubernetes.config.new_client_from_config(kubeconfig) as opened:
        custom, core = kubernetes.client.CustomObjectsApi(opened), kubernetes.client.CoreV1Api(opened)
        job = trainjob("official", trainer={"command": ["echo", "trained"]})
        created = custom.create_namespaced_custom_object(**trainjobs, body=job)
        version = created["metadata"]["resourceVersion"]
        watch, kinds = kubernetes.watch.Watch(), []
        for event in watch.stream(
            custom.list_namespaced_custom_object, **trainjobs, resource_version=version, timeout_seconds=int(TIMEOUT)
        ):
            if event["object"]["metadata"]["name"] == "official":
                kinds = [each["type"] for each in event["object"].get("status", {}).get("conditions", [])]
                if "Complete" in kinds:
                    watch.stop()
        assert "Complete" in kinds
        (pod,) = core.list_namespaced_pod("default", label_selector="jobset.sigs.k8s.io/jobset-name=official").items
        assert pod.status.phase == "Succeeded"
        assert core.read_namespaced_pod_log(pod.metadata.name, "default") == "trained\n"
        custom.delete_namespaced_custom_object(**trainjobs, name="official")
        with pytest.raises(kubernetes.client.ApiException) as absent:
            custom.get_namespaced_custom_object(**trainjobs, name="official")
        assert (absent.value.status, json.loads(absent.value.body)["reason"]) == (404, "NotFound")


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH")
async def test_kubectl_applies_waits_shows_and_deletes(kubeconfig: str, tmp_path: Path) -> None:
    kubectl = Kubectl(Path(kubeconfig), tmp_path)
    job = trainjob("by-hand", on="by-hand", trainer={"command": ["echo", "trained"]})
    applied = await kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all([runtime("by-hand"), job]))
    assert applied == (
        "clustertrainingruntime.trainer.kubeflow.org/by-hand serverside-applied\n"
        "trainjob.trainer.kubeflow.org/by-hand serverside-applied\n"
    )
    limit = f"--timeout={TIMEOUT:g}s"
    waited = await kubectl("wait", "--for=condition=Complete", "trainjob/by-hand", limit)
    assert waited == "trainjob.trainer.kubeflow.org/by-hand condition met\n"
    header, row = (await kubectl("get", "trainjob", "by-hand")).splitlines()
    assert header.split() == ["NAME", "STATE", "ACTIVE", "AGE"]
    assert row.split()[:2] == ["by-hand", "Complete"]
    assert "AllJobsCompleted" in await kubectl("describe", "trainjob", "by-hand")
    assert await kubectl("logs", "-l", "jobset.sigs.k8s.io/jobset-name=by-hand") == "trained\n"
    deleted = await kubectl("delete", "trainjob", "by-hand")
    assert 'trainjob.trainer.kubeflow.org "by-hand" deleted' in deleted
    await kubectl("wait", "--for=delete", "jobset/by-hand", limit)


async def test_metrics_tell_what_it_did(client: KubeClient, cli: Callable[..., Any], cluster_home: Path) -> None:
    await client.create(TRAINJOBS, trainjob("counted"))
    await ended(client, "counted")
    status = (await cli("cluster", "status", "--state-dir", str(cluster_home / ".trainmaster"))).out
    (address,) = re.findall(r"^metrics: +(http://\S+)$", status, re.MULTILINE)
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        assert answer.status == 200
        text = await answer.text()
    reconciles = r'^controller_runtime_reconcile_total\{controller="trainjob_controller",result="success"\} (\S+)$'
    (successes,) = re.findall(reconciles, text, re.MULTILINE)
    assert float(successes) > 0
