"""Training as Kubeflow's users do it: the published SDK against a whole cluster, with nothing but a kubeconfig."""

import logging
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import wait_until
from support.distributions import build_wheel
from support.training import runtime

trainer = pytest.importorskip("kubeflow.trainer", reason="`kubeflow` is not installed; `make test` installs it")
options = pytest.importorskip("kubeflow.trainer.options")
client = pytest.importorskip("kubernetes.client")

TRAINER = {"group": "trainer.kubeflow.org", "version": "v1alpha1"}
PATIENCE = {"timeout": 60, "polling_interval": 1}


def plain(name: str, *, nodes: int = 1, cluster: bool = False) -> dict[str, Any]:
    """A runtime that runs one plain process a node."""
    made = runtime(name)
    made["kind"] = "ClusterTrainingRuntime" if cluster else "TrainingRuntime"
    made["metadata"]["labels"]["trainer.kubeflow.org/framework"] = "plain"
    made["spec"]["mlPolicy"] = {"numNodes": nodes}
    return made


@pytest.fixture
def custom(api_client: Any) -> Any:
    return client.CustomObjectsApi(api_client)


@pytest.fixture
def plain_runtime(custom: Any, namespace: str) -> str:
    custom.create_namespaced_custom_object(**TRAINER, namespace=namespace, plural="trainingruntimes", body=plain("p"))
    return "p"


@pytest.fixture
def trainer_client(kubeconfig: Path, namespace: str) -> Iterator[Any]:
    config = trainer.KubernetesBackendConfig(config_file=str(kubeconfig), namespace=namespace)
    made = trainer.TrainerClient(config)
    yield made
    made.backend.core_api.api_client.close()


@pytest.fixture
def cluster_runtimes(custom: Any) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that creates ClusterTrainingRuntimes; they go when the test ends."""
    made: list[str] = []

    def create(body: dict[str, Any]) -> None:
        custom.create_cluster_custom_object(**TRAINER, plural="clustertrainingruntimes", body=body)
        made.append(body["metadata"]["name"])

    yield create
    for name in made:
        custom.delete_cluster_custom_object(**TRAINER, plural="clustertrainingruntimes", name=name)


def greet(text: str, go: str) -> None:
    """What a user trains with: sent to the nodes as source, so it imports what it needs."""
    import os  # noqa: PLC0415 - see above
    import time  # noqa: PLC0415 - see above

    print(f"node {os.environ['JOB_COMPLETION_INDEX']} of", text, os.environ["TEAM"], flush=True)  # noqa: T201
    while not os.path.exists(go):  # noqa: PTH110 - see above
        time.sleep(0.02)
    print("trained", flush=True)  # noqa: T201


def use_packages() -> None:
    """Import what was installed for this job, in place of what the environment of the cluster has."""
    import importlib  # noqa: PLC0415 - sent as source
    import shutil  # noqa: PLC0415 - sent as source

    versions = [importlib.import_module(name).version for name in ("tinypkg", "retrying")]
    print(*versions, shutil.which("tiny") is not None, flush=True)  # noqa: T201


def give_up() -> None:
    raise SystemExit("the loss is not a number")


def test_the_control_plane_tells_its_version(trainer_client: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The SDK warns where it does not."""
    with caplog.at_level(logging.WARNING, logger="kubeflow"):
        trainer_client.backend.verify_backend()
    assert not caplog.records


def test_runtimes_of_the_namespace_come_before_those_of_the_cluster(
    trainer_client: Any, custom: Any, namespace: str, cluster_runtimes: Callable[[dict[str, Any]], None]
) -> None:
    cluster_runtimes(plain("sdk-both", cluster=True))
    cluster_runtimes(plain("sdk-cluster", cluster=True, nodes=3))
    own = {**TRAINER, "namespace": namespace, "plural": "trainingruntimes"}
    custom.create_namespaced_custom_object(**own, body=plain("sdk-both", nodes=2))

    found = {each.name: each for each in trainer_client.list_runtimes()}
    assert (found["sdk-both"].kind.value, found["sdk-both"].trainer.num_nodes) == ("TrainingRuntime", 2)
    assert found["sdk-cluster"].kind.value == "ClusterTrainingRuntime"
    assert trainer_client.get_runtime("sdk-both") == found["sdk-both"]
    got = trainer_client.get_runtime("sdk-cluster")
    assert (got, got.trainer.framework, got.trainer.num_nodes) == (found["sdk-cluster"], "plain", 3)
    with pytest.raises(RuntimeError, match="sdk-neither"):
        trainer_client.get_runtime("sdk-neither")


def test_the_packages_of_a_runtime(trainer_client: Any, plain_runtime: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The SDK runs a TrainJob for it: the processes of the cluster see the environment that the cluster runs in."""
    trainer_client.get_runtime_packages(trainer_client.get_runtime(plain_runtime))
    printed = capsys.readouterr().out
    assert f"Python: {sys.version.split()[0]}" in printed
    assert "trainmaster" in printed
    assert trainer_client.list_jobs() == []


def test_the_life_of_a_trainjob_on_two_nodes(trainer_client: Any, plain_runtime: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    name = trainer_client.train(
        runtime=plain_runtime,
        trainer=trainer.CustomTrainer(
            func=greet,
            func_args={"text": "two", "go": str(go)},
            num_nodes=2,
            resources_per_node={"cpu": "10m"},
            env={"TEAM": "blue"},
        ),
    )
    running = trainer_client.wait_for_job_status(name, status={"Running"}, **PATIENCE)
    assert (running.status, running.num_nodes) == ("Running", 2)
    assert {step.name: (step.status, step.device) for step in running.steps} == {
        "node-0": ("Running", "cpu"),
        "node-1": ("Running", "cpu"),
    }

    follower = trainer_client.get_job_logs(name, follow=True)
    assert next(follower) == "node 0 of two blue"
    go.touch()
    assert list(follower) == ["trained"]
    done = trainer_client.wait_for_job_status(name, **PATIENCE)
    assert (done.status, {step.status for step in done.steps}) == ("Complete", {"Succeeded"})
    assert list(trainer_client.get_job_logs(name, step="node-1")) == ["node 1 of two blue", "trained"]
    assert list(trainer_client.get_job_logs(name, step="node-0", follow=True)) == ["node 0 of two blue", "trained"]

    assert trainer_client.get_job(name) == done
    assert trainer_client.list_jobs() == [done]
    assert trainer_client.list_jobs(runtime=done.runtime) == [done]
    events = trainer_client.get_job_events(name)
    pods = {step.pod_name for step in done.steps}
    assert {("Pod", pod, "Started") for pod in pods} | {("JobSet", name, "AllJobsCompleted")} <= {
        (event.involved_object_kind, event.involved_object_name, event.reason) for event in events
    }
    assert [event.event_time for event in events] == sorted(event.event_time for event in events)

    trainer_client.delete_job(name)
    with pytest.raises(RuntimeError, match=name):
        trainer_client.get_job(name)
    backend = trainer_client.backend
    wait_until(lambda: not backend.core_api.list_namespaced_pod(backend.namespace).items)


def test_a_function_that_fails_fails_the_job(trainer_client: Any, plain_runtime: str) -> None:
    name = trainer_client.train(runtime=plain_runtime, trainer=trainer.CustomTrainer(func=give_up))
    with pytest.raises(RuntimeError, match=f"TrainJob {name} is Failed"):
        trainer_client.wait_for_job_status(name, **PATIENCE)
    assert trainer_client.wait_for_job_status(name, status={"Failed"}, **PATIENCE).status == "Failed"


def fail_once(failed: str) -> None:
    import os  # noqa: PLC0415 - see `greet`
    import time  # noqa: PLC0415 - see `greet`

    time.sleep(1)
    if not os.path.exists(failed):  # noqa: PTH110 - see `greet`
        open(failed, "w").close()  # noqa: PTH123 - see `greet`
        raise ValueError("my loss is NaN")
    time.sleep(600)


def test_a_job_that_has_recovered_runs_and_its_failure_is_among_its_events(
    trainer_client: Any, custom: Any, namespace: str, tmp_path: Path
) -> None:
    """A TrainJob with any condition, true or not, is never running for the SDK."""
    made = plain("retrying")
    (node,) = made["spec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]["spec"]
    node["template"]["spec"]["backoffLimit"], pod["restartPolicy"] = 3, "OnFailure"
    pod["containers"][0]["terminationMessagePolicy"] = "FallbackToLogsOnError"
    custom.create_namespaced_custom_object(**TRAINER, namespace=namespace, plural="trainingruntimes", body=made)
    name = trainer_client.train(
        runtime="retrying",
        trainer=trainer.CustomTrainer(func=fail_once, func_args={"failed": str(tmp_path / "failed")}),
    )

    def told() -> list[str]:
        events = trainer_client.get_job_events(name)
        return [event.message for event in events if event.reason == "ContainerFailed"]

    assert "my loss is NaN" in wait_until(told)[0]
    assert trainer_client.wait_for_job_status(name, status={"Running"}, **PATIENCE).status == "Running"
    trainer_client.delete_job(name)


def test_packages_are_installed_for_the_job_alone(trainer_client: Any, plain_runtime: str, tmp_path: Path) -> None:
    """Also one that the environment of the cluster has in another version, which it keeps."""
    build_wheel(tmp_path, "tinypkg", "1.0", script="tiny")
    build_wheel(tmp_path, "retrying", "99.0")
    environment = [Path(sysconfig.get_path(kind)) for kind in ("purelib", "scripts")]
    before = [sorted(directory.iterdir()) for directory in environment]
    name = trainer_client.train(
        runtime=plain_runtime,
        trainer=trainer.CustomTrainer(
            func=use_packages,
            num_nodes=2,
            packages_to_install=["tinypkg", "retrying==99.0"],
            env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)},
        ),
    )
    trainer_client.wait_for_job_status(name, **PATIENCE)
    installed = "Successfully installed Python packages (user): tinypkg retrying==99.0"
    for node in ("node-0", "node-1"):
        assert list(trainer_client.get_job_logs(name, step=node)) == [installed, "1.0 99.0 True"]
    assert [sorted(directory.iterdir()) for directory in environment] == before
    trainer_client.delete_job(name)


def test_the_options_of_a_trainjob(trainer_client: Any, custom: Any, namespace: str, plain_runtime: str) -> None:
    """All that the SDK can say about a TrainJob is understood, and reaches the process."""
    node = options.PodSpecPatch(service_account_name="default")
    job = options.JobTemplatePatch(spec=options.JobSpecPatch(template=options.PodTemplatePatch(spec=node)))
    jobset = options.JobSetSpecPatch(replicated_jobs=[options.ReplicatedJobPatch(name="node", template=job)])
    patch = options.TrainingRuntimeSpecPatch(template=options.JobSetTemplatePatch(spec=jobset))
    name = trainer_client.train(
        runtime=plain_runtime,
        trainer=trainer.CustomTrainerContainer(image="none", num_nodes=1),
        options=[
            options.Name("chosen"),
            options.Labels({"team": "blue"}),
            options.Annotations({"about": "options"}),
            options.ActiveDeadlineSeconds(50),
            options.TrainerCommand(["bash", "-c"]),
            options.TrainerArgs(["echo yes"]),
            options.RuntimePatch(training_runtime_spec=patch),
        ],
    )
    assert name == "chosen"
    trainer_client.wait_for_job_status(name, **PATIENCE)
    assert list(trainer_client.get_job_logs(name)) == ["yes"]
    stored = custom.get_namespaced_custom_object(**TRAINER, namespace=namespace, plural="trainjobs", name=name)
    assert stored["metadata"]["labels"] == {"team": "blue"}
    assert stored["metadata"]["annotations"] == {"about": "options"}
    assert stored["spec"]["activeDeadlineSeconds"] == 50


def greet_briefly() -> None:
    import os  # noqa: PLC0415 - see above

    print("rank", os.environ["PET_NODE_RANK"], "of", os.environ["PET_NNODES"], flush=True)  # noqa: T201


def test_the_default_runtime_is_there(trainer_client: Any, tmp_path: Path) -> None:
    """What a user writes first; in place of a torchrun, which not every machine has, stands one of our own."""
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    torchrun.chmod(0o755)
    name = trainer_client.train(
        trainer=trainer.CustomTrainer(
            func=greet_briefly,
            num_nodes=2,
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            resources_per_node={"cpu": "10m"},
        )
    )
    done = trainer_client.wait_for_job_status(name, **PATIENCE)
    assert (done.runtime.name, done.num_nodes) == ("torch-distributed", 2)
    assert [list(trainer_client.get_job_logs(name, step=f"node-{node}")) for node in (0, 1)] == [
        ["rank 0 of 2"],
        ["rank 1 of 2"],
    ]
