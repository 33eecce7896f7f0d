"""MPIJob: what its pods and objects are, by each transport; what is refused; how it ends."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.golden import load_yaml
from support.resolutions import FakeListers, entropy

from trainmaster.plugins.jobs.mpijob import MPIJob, MPIJobOptions
from trainmaster.runtime.api.decoding import ApiTypeError
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.jobs.constants import EXIT_CODE, FAILED, NEVER, ON_FAILURE, RESTARTING, RUNNING, SUCCEEDED
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.pods import build_pod, build_service, training_container
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jobs.validation import check_job
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS

KIND = MPIJob()
SSH = MPIJob(MPIJobOptions(transport="ssh"), entropy=entropy)
CASES = Path(__file__).parents[2] / "golden" / "v1"
RECORDED = ("071-mpi-launcher-workers", "072-mpi-gpu-launcher", "075-mpi-rich", "124-custom-mpi-image")
SECTIONS = {
    "ConfigMap": "configmaps",
    "ServiceAccount": "serviceaccounts",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}
OWNER = "<MPIJob/{}>"


def replica(*, replicas: int | None = None, **spec: Any) -> JsonObject:
    template = {"spec": {"containers": [{"name": "mpi", "image": "train:1"}], **spec}}
    return {"template": template} if replicas is None else {"replicas": replicas, "template": template}


def mpijob(kind: MPIJob = KIND, *, workers: int | None = 2, launcher: JsonObject | None = None, **spec: Any) -> Job:
    replicas = {"Launcher": launcher if launcher is not None else replica()}
    if workers is not None:
        replicas["Worker"] = replica(replicas=workers)
    return parsed(kind, {"mpiReplicaSpecs": replicas, **spec})


def parsed(kind: MPIJob, spec: JsonObject) -> Job:
    return parse_job(kind, {"metadata": {"name": "mw", "namespace": "NS", "uid": "u"}, "spec": spec})


def built(job: Job, pods: Sequence[JsonObject] = (), *existing: JsonObject) -> dict[str, JsonObject]:
    return {obj["kind"]: obj for obj in job.kind.build(job, pods, FakeListers(*existing))}


def worker_pod(index: int, phase: str = "Running", **metadata: Any) -> JsonObject:
    labels = {"training.kubeflow.org/replica-type": "worker"}
    return {"metadata": {"name": f"mw-worker-{index}", "labels": labels, **metadata}, "status": {"phase": phase}}


def environment(pod: JsonObject, container: int = 0) -> dict[str, str | None]:
    return {each["name"]: each.get("value") for each in pod["spec"]["containers"][container].get("env") or []}


def errors(job: Job) -> list[FieldError]:
    return [each for each in job.kind.validate(job, None) if isinstance(each, FieldError)]


# The recorded cases.


def recorded(name: str) -> tuple[Job, dict[str, JsonObject]]:
    case = load_yaml((CASES / f"{name}.yaml").read_text())
    step = case["steps"][0]
    options = MPIJobOptions(
        kubectl_delivery_image="registry.example/kd:v3"
        if case["given"]["profile"] == "custom"
        else MPIJobOptions().kubectl_delivery_image
    )
    raw = step["do"][0]["create"]
    metadata = {**raw["metadata"], "namespace": "NS", "uid": OWNER.format(raw["metadata"]["name"])}
    return parse_job(MPIJob(options), {**raw, "metadata": metadata}), case["expect"][step["stage"]]


def as_recorded(pod: JsonObject) -> JsonObject:
    """A pod as the recorder wrote it down: without name and what is the default, requests filled in, pending."""
    spec = pod["spec"]
    for container in [*spec["containers"], *(spec.get("initContainers") or [])]:
        resources = container.get("resources") or {}
        if "limits" in resources:
            resources.setdefault("requests", resources["limits"])
        if not container["image"].endswith(":latest"):
            container.pop("imagePullPolicy", None)  # the default
        for variable in container.get("env") or []:
            if variable.get("value") == "":
                del variable["value"]
    metadata = {key: value for key, value in pod["metadata"].items() if key not in ("name", "namespace")}
    return {"metadata": metadata, "spec": spec, "phase": "Pending", "incarnation": 1}


@pytest.mark.parametrize("name", RECORDED)
def test_pods_are_what_was_recorded(name: str) -> None:
    job, expected = recorded(name)
    pods = [build_pod(job, each, index) for each, spec in job.replica_specs.items() for index in range(spec.replicas)]
    assert {pod["metadata"]["name"]: as_recorded(pod) for pod in pods} == expected["pods"]


@pytest.mark.parametrize("name", RECORDED)
def test_objects_are_what_was_recorded(name: str) -> None:
    job, expected = recorded(name)
    for obj in job.kind.build(job, [], NO_LISTERS):
        kind = obj.pop("kind")
        (found,) = expected[SECTIONS[kind]].values()
        owners = found["metadata"].pop("ownerReferences")
        assert [each["uid"] for each in owners] == [job.metadata.uid]
        obj["metadata"].pop("name")
        del obj["apiVersion"]
        assert obj == found, kind


def test_objects_come_in_the_order_in_which_they_are_needed() -> None:
    """The launcher must find its account and its files, and binding a Role takes the Role."""
    assert list(built(mpijob())) == ["ServiceAccount", "ConfigMap", "Role", "RoleBinding"]


# Objects.


def test_discover_hosts_lists_the_workers_that_run() -> None:
    """Elastic Horovod calls the script again and again."""
    pods = [worker_pod(1), worker_pod(0), worker_pod(2, "Pending"), worker_pod(3, deletionTimestamp="now")]
    pods.append({"metadata": {"name": "mw-launcher"}, "status": {"phase": "Running"}})
    script = built(mpijob(slotsPerWorker=4), pods)["ConfigMap"]["data"]["discover_hosts.sh"]
    assert script == "#!/bin/sh\necho mw-worker-0:4\necho mw-worker-1:4"


def test_a_launcher_with_a_gpu_is_a_host() -> None:
    limited = [{"name": "mpi", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
    data = built(mpijob(launcher=replica(containers=limited)), [worker_pod(0)])["ConfigMap"]["data"]
    assert data["hostfile"] == "mw-launcher slots=1\nmw-worker-0 slots=1\nmw-worker-1 slots=1\n"
    script = subprocess.run(["sh", "-c", data["discover_hosts.sh"]], check=True, capture_output=True, text=True)
    assert script.stdout == "mw-launcher:1\nmw-worker-0:1\n"


def test_kubexec_calls_kubectl_exec_with_the_words_of_mpirun(tmp_path: Path) -> None:
    data = built(mpijob(mainContainer="work"))["ConfigMap"]["data"]
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done\n')
    kubectl.chmod(0o755)
    script = tmp_path / "kubexec.sh"
    script.write_text(data["kubexec.sh"].replace("/opt/kube", str(tmp_path)))
    run = subprocess.run(
        ["sh", str(script), "mw-worker-1", "orted", "-mca", "a b"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert run.stdout.split("\n")[:-1] == [
        *("[exec]", "[mw-worker-1]", "[--container]", "[work]", "[--]", "[/bin/sh]", "[-c]", "[orted -mca a b]"),
    ]


@pytest.mark.parametrize("workers", [None, 0])
def test_v1_b35_a_launcher_alone_may_exec_nowhere(workers: int | None) -> None:
    """V1-B35: a rule without names would be about all pods of the namespace."""
    assert built(mpijob(workers=workers))["Role"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]


def test_v1_b19_an_account_that_the_author_names_is_nobodys() -> None:
    """V1-B19: the original's went with the job, from under other pods."""
    objects = built(mpijob(launcher=replica(serviceAccountName="nosa")))
    account = objects["ServiceAccount"]["metadata"]
    assert (account["name"], account["ownerReferences"]) == ("nosa", [])
    assert objects["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": "nosa", "namespace": "NS"}]
    assert "ownerReferences" not in built(mpijob())["ServiceAccount"]["metadata"]


def test_an_account_that_somebody_made_for_the_launcher_is_taken_as_it_is() -> None:
    """With its secrets for pulling images, for instance; but not what an earlier job of the name left."""
    account: JsonObject = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "mw-launcher", "namespace": "NS"},
    }
    assert built(mpijob(), [], account)["ServiceAccount"]["metadata"]["ownerReferences"] == []
    owners = [{"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": "mw", "uid": "earlier", "controller": True}]
    account["metadata"]["ownerReferences"] = owners
    assert "ownerReferences" not in built(mpijob(), [], account)["ServiceAccount"]["metadata"]


def test_everything_that_is_built_is_watched() -> None:
    for kind in (KIND, SSH):
        watched = {(each.api_version, each.kind) for each in kind.watches() if each.writes}
        assert {(obj["apiVersion"], obj["kind"]) for obj in kind.build(mpijob(kind), [], NO_LISTERS)} == watched


def test_the_rights_of_a_role_are_declared() -> None:
    """Who creates a Role must have what it gives."""
    given = {
        (resource, verb)
        for rule in built(mpijob())["Role"]["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    declared = {
        ("/".join(filter(None, (each.plural, each.subresource))), verb) for each in KIND.grants() for verb in each.verbs
    }
    assert given == declared


# Pods.


def test_the_launcher_is_one_pod_without_an_index() -> None:
    labels = build_pod(mpijob(), "Launcher", 0)["metadata"]["labels"]
    assert "training.kubeflow.org/replica-index" not in labels
    assert labels["training.kubeflow.org/job-role"] == "master"
    assert build_pod(mpijob(), "Worker", 1)["metadata"]["labels"]["training.kubeflow.org/replica-index"] == "1"


def test_v1_b38_variables_of_the_operator_count() -> None:
    """V1-B38: all but those by which Intel MPI is started, once each."""
    given = [{"name": name, "value": "mine"} for name in ("OMPI_MCA_plm_rsh_agent", "I_MPI_HYDRA_BOOTSTRAP")]
    pod = build_pod(mpijob(launcher=replica(containers=[{"name": "m", "image": "i", "env": given}])), "Launcher", 0)
    names = [each["name"] for each in pod["spec"]["containers"][0]["env"]]
    assert len(names) == len(set(names))
    assert environment(pod)["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
    assert environment(pod)["I_MPI_HYDRA_BOOTSTRAP"] == "mine"


def test_the_first_container_trains_where_none_has_the_name() -> None:
    named = [{"name": "side", "image": "i"}, {"name": "mpi", "image": "i"}]
    job = mpijob(launcher=replica(containers=named))
    assert training_container(job, "Launcher")["name"] == "mpi"
    assert training_container(mpijob(launcher=replica(containers=named[:1])), "Launcher")["name"] == "side"


def test_building_changes_nothing_that_is_shared() -> None:
    job = mpijob(launcher=replica(volumes=[{"name": "data", "emptyDir": {}}]))
    before = repr(job)
    first = build_pod(job, "Launcher", 0), built(job)
    assert (build_pod(job, "Launcher", 0), built(job)) == first
    assert repr(job) == before


# The transport ssh.


def test_v1_b35_ssh_needs_no_right() -> None:
    """V1-B35: neither the manager nor the launcher may do anything with pods."""
    assert list(SSH.grants()) == []
    assert list(built(mpijob(SSH))) == ["Secret", "ConfigMap"]
    spec = build_pod(mpijob(SSH), "Launcher", 0)["spec"]
    assert "serviceAccountName" not in spec
    assert "initContainers" not in spec


def test_hosts_are_found_by_services_over_ssh() -> None:
    """And by nothing that is not there with kubectl exec, which needs no names."""
    assert (KIND.has_services, SSH.has_services) == (False, True)
    job = mpijob(SSH)
    services = [build_service(job, "Worker", index)["metadata"]["name"] for index in range(2)]
    data = built(job)["ConfigMap"]["data"]
    assert [line.split()[0] for line in data["hostfile"].splitlines()] == services
    assert build_service(job, "Launcher", 0)["spec"]["selector"] == {
        "training.kubeflow.org/operator-name": "mpijob-controller",
        "training.kubeflow.org/job-name": "mw",
        "training.kubeflow.org/replica-type": "launcher",
    }


def test_each_implementation_finds_hosts_in_its_words_over_ssh() -> None:
    job = mpijob(SSH, slotsPerWorker=2)
    data = built(job)["ConfigMap"]["data"]
    assert data["hostfile"] == "mw-worker-0 slots=2\nmw-worker-1 slots=2\n"
    assert data["hydra_hostfile"] == "mw-worker-0:2\nmw-worker-1:2\n"
    pod = build_pod(job, "Launcher", 0)
    env = environment(pod)
    assert env["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert env["I_MPI_HYDRA_HOST_FILE"] == env["HYDRA_HOST_FILE"] == "/etc/mpi/hydra_hostfile"
    assert env["I_MPI_HYDRA_BOOTSTRAP"] == "ssh"
    assert env["NVIDIA_VISIBLE_DEVICES"] == ""
    files = next(each for each in pod["spec"]["volumes"] if each["name"] == "mpi-job-config")
    assert {each["key"] for each in files["configMap"]["items"]} == data.keys()


def test_the_keys_are_made_once() -> None:
    """A key that changed under running pods would part them."""
    job = mpijob(SSH)
    secret = built(job)["Secret"]
    assert secret["data"].keys() == {"ssh-privatekey", "ssh-publickey"}
    assert secret["immutable"]
    existing = {**secret, "metadata": {**secret["metadata"], "namespace": "NS"}}
    assert "data" not in built(job, [], existing)["Secret"]


@pytest.mark.parametrize(("path", "mode"), [("/root/.ssh", 0o400), ("/home/mpiuser/.ssh", 0o640)])
def test_all_pods_have_the_keys(path: str, mode: int) -> None:
    kind = MPIJob(MPIJobOptions(transport="ssh", ssh_auth_mount_path=path))
    for replica_type in ("Launcher", "Worker"):
        spec = build_pod(mpijob(kind), replica_type, 0)["spec"]
        volume = next(each for each in spec["volumes"] if "secret" in each)["secret"]
        assert volume["secretName"] == "mw-ssh"
        assert next(each for each in volume["items"] if each["path"] == "id_rsa")["mode"] == mode
        assert path in [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]]


def test_workers_run_sshd_if_they_are_to_run_nothing_else() -> None:
    job = mpijob(SSH, workers=1)
    assert build_pod(job, "Worker", 0)["spec"]["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]
    for own in ({"command": ["own"]}, {"args": ["own"]}):
        workers = replica(replicas=1, containers=[{"name": "mpi", "image": "i", **own}])
        job = parsed(SSH, {"mpiReplicaSpecs": {"Launcher": replica(), "Worker": workers}})
        container = build_pod(job, "Worker", 0)["spec"]["containers"][0]
        assert {key: container[key] for key in ("command", "args") if key in container} == own


def test_keys_go_to_the_main_container_of_a_worker() -> None:
    two = replica(replicas=1, containers=[{"name": "side", "image": "i"}, {"name": "work", "image": "i"}])
    job = parsed(SSH, {"mainContainer": "work", "mpiReplicaSpecs": {"Launcher": replica(), "Worker": two}})
    side, work = build_pod(job, "Worker", 0)["spec"]["containers"]
    assert side == {"name": "side", "image": "i"}
    assert work["command"] == ["/usr/sbin/sshd", "-De"]


def test_over_ssh_variables_of_the_author_count() -> None:
    given = [{"name": "I_MPI_HYDRA_IFACE", "value": "ib0"}]
    job = mpijob(SSH, launcher=replica(containers=[{"name": "m", "image": "i", "env": given}]))
    assert environment(build_pod(job, "Launcher", 0))["I_MPI_HYDRA_IFACE"] == "ib0"


# Options.


def test_options_choose_the_transport() -> None:
    (kind,) = load_job_kinds(enabled=["MPIJob"], options={"mpijob": {"transport": "ssh"}})
    assert kind.has_services
    (kind,) = load_job_kinds(enabled=["mpijob"])
    assert not kind.has_services


def test_a_transport_that_does_not_exist_is_refused() -> None:
    with pytest.raises(PluginInvalid, match='transport: must be "kubectl-exec" or "ssh", got "rsh"'):
        load_job_kinds(enabled=["mpijob"], options={"mpijob": {"transport": "rsh"}})


# Defaults.


def test_there_is_one_launcher_and_no_worker_unless_somebody_says() -> None:
    job = parsed(KIND, {"mpiReplicaSpecs": {"Worker": replica(), "Launcher": replica()}})
    assert {name: (spec.replicas, spec.restart_policy) for name, spec in job.replica_specs.items()} == {
        "Launcher": (1, NEVER),
        "Worker": (0, NEVER),
    }
    assert "ports" not in job.replica_specs["Launcher"].template["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({}, "None"),
        ({"cleanPodPolicy": "Running"}, "Running"),
        ({"cleanPodPolicy": "Running", "runPolicy": {"suspend": False}}, "Running"),
        ({"cleanPodPolicy": "Running", "runPolicy": {"cleanPodPolicy": "All"}}, "All"),
        ({"cleanPodPolicy": "Running", "runPolicy": {"cleanPodPolicy": "None"}}, "None"),
        ({"cleanPodPolicy": None, "runPolicy": {"cleanPodPolicy": None}}, "None"),
    ],
)
def test_clean_pod_policy_stands_in_two_places(spec: JsonObject, policy: str) -> None:
    assert mpijob(**spec).run_policy.clean_pod_policy == policy


@pytest.mark.parametrize(
    ("field", "value"), [("slotsPerWorker", "two"), ("cleanPodPolicy", 1), ("mainContainer", ["work"])]
)
def test_a_field_of_the_wrong_type_is_told(field: str, value: Any) -> None:
    with pytest.raises(ApiTypeError, match=rf"spec\.{field}: must be"):
        mpijob(**{field: value})


# Validation.

UNNAMED = {"name": "", "image": "i"}
WITHOUT_IMAGE = {"name": "mpi"}


@pytest.mark.parametrize(
    ("replicas", "path", "text"),
    [
        (None, "spec.mpiReplicaSpecs", "MPIReplicaSpecs is not valid"),
        ({}, "[Launcher]", "MPIReplicaSpec is not valid: Master ReplicaSpec must be present"),
        (
            {"Worker": replica(replicas=2)},
            "[Launcher]",
            "MPIReplicaSpec is not valid: Master ReplicaSpec must be present",
        ),
        (
            {"Launcher": {"template": {}}},
            "[Launcher].template.spec.containers",
            "MPIReplicaSpecs is not valid: containers definition expected in Launcher",
        ),
        (
            {"Launcher": replica(), "Worker": None},
            "[Worker].template.spec.containers",
            "MPIReplicaSpecs is not valid: containers definition expected in Worker",
        ),
        (
            {"Launcher": replica(), "worker": replica()},
            "[worker]",
            "MPIReplicaType is worker but must be one of [Launcher Worker]",
        ),
        (
            {"Launcher": replica(containers=[WITHOUT_IMAGE])},
            "[Launcher].template.spec.containers[0].image",
            "MPIReplicaSpec is not valid: Image is undefined in the container of Launcher",
        ),
        (
            {"Launcher": replica(), "Worker": replica(containers=[{"name": "a", "image": "i"}, UNNAMED])},
            "[Worker].template.spec.containers[1].name",
            "MPIReplicaSpec is not valid: ImageName is undefined in the container of Worker",
        ),
        (
            {"Launcher": replica(replicas=0)},
            "[Launcher].replicas",
            "MPIReplicaSpec is not valid: There must be only 1 launcher replica",
        ),
    ],
)
def test_v1_b18_what_is_wrong_is_told_as_the_original_does(replicas: JsonObject | None, path: str, text: str) -> None:
    """V1-B18: by field, and in the recorded words for the event."""
    job = parsed(KIND, {"mpiReplicaSpecs": replicas})
    found = errors(job)
    assert [each.detail for each in found] == [text]
    assert found[0].path.removeprefix("spec.mpiReplicaSpecs") in (path, "")
    assert KIND.refusal(found) == text


def test_errors_of_all_kinds_are_told_in_full() -> None:
    assert KIND.refusal([FieldError("metadata.name", "should match", value="A")]) == (
        'metadata.name: Invalid value: "A": should match'
    )


@pytest.mark.parametrize("kind", [KIND, SSH])
def test_hosts_that_do_not_fit_into_a_config_map_are_too_many(kind: MPIJob) -> None:
    job = mpijob(kind, workers=2**31 - 1)
    (error,) = errors(job)
    assert error.path == "spec.mpiReplicaSpecs[Worker].replicas"
    most = int(error.detail.split()[5])
    fits = mpijob(kind, workers=most)
    assert not errors(fits)
    data = built(fits, [worker_pod(index) for index in range(most)])["ConfigMap"]["data"]
    assert sum(map(len, data.values())) < 2**20


def test_counts_and_policies_are_checked_as_for_all_kinds() -> None:
    job = mpijob(workers=-1, launcher={**replica(), "restartPolicy": "Sometimes"})
    assert [each.path for each in check_job(job) if isinstance(each, FieldError)] == [
        "spec.mpiReplicaSpecs[Launcher].restartPolicy",
        "spec.mpiReplicaSpecs[Worker].replicas",
    ]


def test_a_valid_job_has_no_errors() -> None:
    assert errors(mpijob()) == []


NAMES = st.sampled_from(["Launcher", "Worker", "launcher", "Chief", ""])
SPECS = st.dictionaries(
    NAMES,
    st.none()
    | st.fixed_dictionaries(
        {},
        optional={
            "replicas": st.none() | st.integers(-2, 3),
            "restartPolicy": st.sampled_from(["", "Never", "ExitCode", "Sometimes"]),
            "template": st.fixed_dictionaries(
                {},
                optional={
                    "spec": st.fixed_dictionaries(
                        {},
                        optional={
                            "containers": st.lists(
                                st.fixed_dictionaries(
                                    {"name": st.sampled_from(["mpi", ""])}, optional={"image": st.just("i")}
                                ),
                                max_size=2,
                            )
                        },
                    )
                },
            ),
        },
    ),
    max_size=3,
)


@given(SPECS, st.sampled_from([KIND, SSH]))
def test_what_is_valid_can_be_built_and_nothing_crashes(replicas: JsonObject, kind: MPIJob) -> None:
    """Whatever a schema lets pass; of types that no schema lets pass the reader tells."""
    job = parsed(kind, {"mpiReplicaSpecs": replicas})
    if errors(job):
        return
    pods = [build_pod(job, each, index) for each, spec in job.replica_specs.items() for index in range(spec.replicas)]
    names = [pod["metadata"]["name"] for pod in pods]
    assert len(names) == len(set(names))
    data = built(job)["ConfigMap"]["data"]
    assert [line.split()[0] for line in data["hostfile"].splitlines()] == [name for name in names if "worker" in name]


# Status.


def outcome(
    job: Job, launcher: ReplicaStatus, worker: ReplicaStatus, pods: Sequence[JsonObject] = ()
) -> list[ConditionUpdate]:
    return list(KIND.update_job_status(job, {"Launcher": launcher, "Worker": worker}, {"Worker": pods}))


def test_the_launcher_says_how_the_job_fares() -> None:
    workers = ReplicaStatus(active=2)
    assert outcome(mpijob(), ReplicaStatus(), workers) == []
    assert outcome(mpijob(), ReplicaStatus(active=1), workers) == [ConditionUpdate(RUNNING, "MPIJob mw is running.")]
    assert outcome(mpijob(), ReplicaStatus(succeeded=1), workers) == [
        ConditionUpdate(SUCCEEDED, "MPIJob mw is successfully completed.")
    ]
    assert outcome(mpijob(), ReplicaStatus(failed=1), workers) == [
        ConditionUpdate(FAILED, "MPIJob mw is failed because 1 Launcher replica(s) failed.")
    ]


def test_a_worker_that_fails_after_the_launcher_has_succeeded_does_not_matter() -> None:
    (update,) = outcome(mpijob(), ReplicaStatus(succeeded=1), ReplicaStatus(active=1, failed=1))
    assert update.type == SUCCEEDED


@pytest.mark.parametrize("policy", [ON_FAILURE, EXIT_CODE])
def test_v1_b10_failed_replicas_are_restarted_by_their_policy(policy: str) -> None:
    """V1-B10: the original failed the job, or waited for nothing."""
    job = mpijob(launcher={**replica(), "restartPolicy": policy})
    (update,) = outcome(job, ReplicaStatus(failed=1), ReplicaStatus(active=2))
    assert update == ConditionUpdate(RESTARTING, "MPIJob mw is restarting because 1 Launcher replica(s) failed.")


def test_v1_b18_an_eviction_is_told() -> None:
    """V1-B18: the original found out and threw it away. Its reason otherwise was MPIJobMPIJobFailed."""
    evicted = {"metadata": {"name": "mw-worker-0"}, "status": {"phase": "Failed", "reason": "Evicted"}}
    updates = outcome(mpijob(), ReplicaStatus(active=1), ReplicaStatus(active=1, failed=1), [evicted])
    assert updates[-1] == ConditionUpdate(
        FAILED, "MPIJob mw is failed because 1 Worker replica(s) failed.", reason="MPIJobEvicted"
    )


@pytest.mark.parametrize(
    ("launcher", "policy", "workers"),
    [
        (ReplicaStatus(active=1), NEVER, ReplicaStatus(active=2)),
        (ReplicaStatus(succeeded=1), NEVER, ReplicaStatus()),
        (ReplicaStatus(failed=1), NEVER, ReplicaStatus()),
        (ReplicaStatus(failed=1), ON_FAILURE, ReplicaStatus(active=2)),
    ],
)
def test_workers_do_not_count_once_the_launcher_has_finished(
    launcher: ReplicaStatus, policy: str, workers: ReplicaStatus
) -> None:
    job = mpijob(launcher={**replica(), "restartPolicy": policy})
    counted = KIND.replica_statuses(job, {"Launcher": launcher, "Worker": ReplicaStatus(active=2)})
    assert counted == {"Launcher": launcher, "Worker": workers}
