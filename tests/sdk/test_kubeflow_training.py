"""Jobs of kubeflow.org/v1 as their users make them: the published SDK `kubeflow-training` against a whole cluster."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.commands import wait_until

training = pytest.importorskip(
    "kubeflow.training", reason="`kubeflow-training` is not installed; `make test` installs it"
)
client = pytest.importorskip("kubernetes.client")


GUIDE = Path(__file__).resolve().parents[2] / "docs/v1-jobs.md"
PATIENCE = {"wait_timeout": 60, "polling_interval": 0.1}
ENDED = ("Running", "Restarting", "Failed")
KINDS = {
    "PyTorchJob": ("pytorch", {"Master": 1, "Worker": 2}),
    "TFJob": ("tensorflow", {"Chief": 1, "PS": 1, "Worker": 2}),
    "XGBoostJob": ("xgboost", {"Master": 1, "Worker": 1}),
    "MPIJob": ("mpi", {"Launcher": 1, "Worker": 2}),
    "PaddleJob": ("paddle", {"Worker": 2}),
    "JAXJob": ("jax", {"Worker": 2}),
}
"""The container that trains, and replicas, of each kind."""

SPECS = {"PyTorchJob": "pytorch", "TFJob": "tf", "XGBoostJob": "xgb", "MPIJob": "mpi", "PaddleJob": "paddle"}


@pytest.fixture
def training_client(kubeconfig: Path, namespace: str) -> Iterator[Any]:
    made = training.TrainingClient(config_file=str(kubeconfig), namespace=namespace)
    yield made
    for each in (made.core_api.api_client, made.api_client):
        each.close()


def job_of(
    kind: str, name: str, *, command: list[str] | None = None, replicas: Mapping[str, int] | None = None, **policy: Any
) -> Any:
    """A job made of the models of the SDK."""
    container, usual = KINDS[kind]
    main = client.V1Container(name=container, image="none", command=command or ["true"])
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[main], termination_grace_period_seconds=1))
    specs = {
        each: training.KubeflowOrgV1ReplicaSpec(replicas=number, restart_policy="Never", template=template)
        for each, number in (replicas or usual).items()
    }
    spec = getattr(training, f"KubeflowOrgV1{kind}Spec")(
        run_policy=training.KubeflowOrgV1RunPolicy(**policy), **{f"{SPECS.get(kind, 'jax')}_replica_specs": specs}
    )
    metadata = client.V1ObjectMeta(name=name)
    return getattr(training, f"KubeflowOrgV1{kind}")(
        api_version="kubeflow.org/v1", kind=kind, metadata=metadata, spec=spec
    )


def told(job: Any) -> list[tuple[str, str]]:
    return [(each.type, each.status) for each in job.status.conditions]


def greet(parameters: dict[str, str]) -> None:
    """What a user trains with: sent to the pods as source, so it imports what it needs."""
    import os  # noqa: PLC0415 - see above
    import time  # noqa: PLC0415 - see above

    print(os.environ["TEAM"], "rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)  # noqa: T201
    while not os.path.exists(parameters["go"]):  # noqa: PTH110 - see above
        time.sleep(0.02)
    print("trained", flush=True)  # noqa: T201


def tell_the_cluster() -> None:
    """What TensorFlow reads of its environment."""
    import json  # noqa: PLC0415 - see above
    import os  # noqa: PLC0415 - see above

    config = json.loads(os.environ["TF_CONFIG"])
    sizes = {each: len(addresses) for each, addresses in config["cluster"].items()}
    print(config["task"]["type"], config["task"]["index"], "in", sizes, flush=True)  # noqa: T201


def give_up() -> None:
    raise SystemExit("the loss is not a number")


def test_the_life_of_a_pytorchjob_that_is_made_of_a_function(training_client: Any, tmp_path: Path) -> None:
    go = tmp_path / "go"
    training_client.create_job(
        name="life",
        train_func=greet,
        parameters={"go": str(go)},
        env_vars={"TEAM": "blue"},
        resources_per_worker={"cpu": "10m"},
        labels={"team": "blue"},
        annotations={"about": "life"},
    )
    running = training_client.wait_for_job_conditions("life", expected_conditions={"Running"}, **PATIENCE)
    assert told(running) == [("Created", "True"), ("Running", "True")]
    assert running.status.replica_statuses["Master"].active == 1
    assert training_client.is_job_created("life")
    assert training_client.is_job_running("life")
    assert not training_client.is_job_succeeded("life")
    assert (running.metadata.labels, running.metadata.annotations["about"]) == ({"team": "blue"}, "life")
    wait_until(lambda: training_client.get_job_logs("life")[0] == {"life-master-0": "blue rank 0 of 1\n"})

    go.touch()
    followed, _ = training_client.get_job_logs("life", follow=True)
    assert followed == {"life-master-0": "blue rank 0 of 1trained"}, "the SDK drops the ends of the lines"
    done = training_client.wait_for_job_conditions("life", **PATIENCE)
    assert told(done) == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    assert done.status.start_time <= done.status.completion_time
    assert done.status.replica_statuses["Master"].succeeded == 1
    assert training_client.is_job_succeeded("life")
    assert not any(getattr(training_client, f"is_job_{each.lower()}")("life") for each in ENDED)
    assert [each.metadata.name for each in training_client.list_jobs()] == ["life"]

    logs, events = training_client.get_job_logs("life", verbose=True)
    assert logs == {"life-master-0": "blue rank 0 of 1\ntrained\n"}
    assert any("Created pod: life-master-0" in each for each in events["pytorchjob/life"])
    assert any("PyTorchJob life is successfully completed." in each for each in events["pytorchjob/life"])
    assert "pod/life-master-0" in events

    training_client.delete_job("life")
    with pytest.raises(RuntimeError, match="life"):
        training_client.get_job("life")
    wait_until(lambda: not training_client.get_job_pods("life"))


def test_a_tfjob_that_is_made_of_a_function(training_client: Any) -> None:
    """Each of its pods gets the whole cluster, and its own place in it, by TF_CONFIG."""
    training_client.create_job(
        name="roles",
        job_kind="TFJob",
        train_func=tell_the_cluster,
        num_workers=2,
        num_ps_replicas=1,
        num_chief_replicas=1,
    )
    training_client.wait_for_job_conditions("roles", job_kind="TFJob", **PATIENCE)
    pods = {"roles-chief-0", "roles-ps-0", "roles-worker-0", "roles-worker-1"}
    assert set(training_client.get_job_pod_names("roles")) == pods
    assert training_client.get_job_pod_names("roles", is_master=True) == ["roles-chief-0"]
    assert set(training_client.get_job_pod_names("roles", replica_type="worker")) == {
        "roles-worker-0",
        "roles-worker-1",
    }
    assert training_client.get_job_pod_names("roles", replica_type="worker", replica_index=1) == ["roles-worker-1"]
    logs, _ = training_client.get_job_logs("roles", job_kind="TFJob")
    assert logs == {"roles-chief-0": "chief 0 in {'chief': 1, 'ps': 1, 'worker': 2}\n"}


def test_small_jobs_of_all_kinds_succeed(training_client: Any) -> None:
    for kind in KINDS:
        training_client.create_job(job_of(kind, f"small-{kind.lower()}"))
    for kind in KINDS:
        name = f"small-{kind.lower()}"
        job = training_client.wait_for_job_conditions(name, job_kind=kind, **PATIENCE)
        assert [each for each, status in told(job) if status == "True"] == ["Created", "Succeeded"]
        assert [each.metadata.name for each in training_client.list_jobs(job_kind=kind)] == [name]
        (master,) = training_client.get_job_pod_names(name, is_master=True) or [None]
        assert master == {
            "TFJob": f"{name}-chief-0",
            "MPIJob": f"{name}-launcher",
            "JAXJob": f"{name}-worker-0",
            "PaddleJob": None,
        }.get(kind, f"{name}-master-0")


def test_only_its_own_jobs_are_worked_on(training_client: Any) -> None:
    training_client.create_job(job_of("PyTorchJob", "ours", managed_by="kubeflow.org/training-operator"))
    training_client.create_job(job_of("PyTorchJob", "others", managed_by="kueue.x-k8s.io/multikueue"))
    with pytest.raises(RuntimeError, match=r'managedBy: Unsupported value: \\"somebody\\"'):
        training_client.create_job(job_of("PyTorchJob", "nobodys", managed_by="somebody"))
    training_client.wait_for_job_conditions("ours", **PATIENCE)
    assert {each.metadata.name for each in training_client.list_jobs()} == {"ours", "others"}
    others = training_client.get_job("others")
    assert others.status is None or not others.status.conditions
    assert not training_client.get_job_pods("others")
    with pytest.raises(RuntimeError, match="immutable"):
        training_client.update_job({"spec": {"runPolicy": {"managedBy": "kubeflow.org/training-operator"}}}, "others")


def test_a_function_that_fails_fails_the_job(training_client: Any) -> None:
    training_client.create_job(name="fails", job_kind="TFJob", train_func=give_up)
    with pytest.raises(RuntimeError, match="is Failed"):
        training_client.wait_for_job_conditions("fails", job_kind="TFJob", **PATIENCE)
    failed = training_client.wait_for_job_conditions(
        "fails", job_kind="TFJob", expected_conditions={"Failed"}, **PATIENCE
    )
    assert failed.status.conditions[-1].message.endswith("has failed because 1 Worker replica(s) failed.")
    assert failed.status.replica_statuses["Worker"].failed == 1
    logs, _ = training_client.get_job_logs("fails", job_kind="TFJob")
    assert logs == {"fails-worker-0": "the loss is not a number\n"}


def test_the_program_of_the_guide_works(kubeconfig: Path, tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / ".trainmaster").symlink_to(kubeconfig.parent)
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "training for 3 epochs\n\n"), done.stderr
