"""MPIJob: how it is read, what is refused, what its pods and objects are, and how it ends."""

import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mpijobs import KIND, SSH, built, errors, mpijob, parsed, replica, worker_pod

from trainmaster.plugins.jobs.mpijob import MPIJob
from trainmaster.runtime.api.decoding import ApiTypeError
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.jobs.constants import EXIT_CODE, FAILED, NEVER, ON_FAILURE, RESTARTING, SUCCEEDED
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.pods import build_pod, training_container
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jobs.validation import check_job
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS


def test_discover_hosts_lists_the_workers_that_run() -> None:
    """Elastic Horovod calls the script again and again."""
    pods = [worker_pod(1), worker_pod(0), worker_pod(2, "Pending"), worker_pod(3, deletionTimestamp="now")]
    pods.append({"metadata": {"name": "mw-launcher"}, "status": {"phase": "Running"}})
    script = built(mpijob(slotsPerWorker=4), pods)["ConfigMap"]["data"]["discover_hosts.sh"]
    assert script == "#!/bin/sh\necho mw-worker-0:4\necho mw-worker-1:4"


@pytest.mark.nightly
def test_a_launcher_with_a_gpu_is_a_host() -> None:
    limited = [{"name": "mpi", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
    data = built(mpijob(launcher=replica(containers=limited)), [worker_pod(0)])["ConfigMap"]["data"]
    assert data["hostfile"] == "mw-launcher slots=1\nmw-worker-0 slots=1\nmw-worker-1 slots=1\n"
    script = subprocess.run(["sh", "-c", data["discover_hosts.sh"]], check=True, capture_output=True, text=True)
    assert script.stdout == "mw-launcher:1\nmw-worker-0:1\n"


def test_everything_that_is_built_is_watched_and_comes_in_the_order_in_which_it_is_needed() -> None:
    for kind in (KIND, SSH):
        watched = {(each.api_version, each.kind) for each in kind.watches() if each.writes}
        assert {
            (obj["apiVersion"], obj["kind"]) for obj in kind.build(mpijob(kind), [worker_pod(0)], NO_LISTERS)
        } == watched
    # The launcher must find its account and its files, and binding a Role takes the Role, which takes pods.
    assert list(built(mpijob())) == ["ServiceAccount", "ConfigMap"]
    assert list(built(mpijob(), [worker_pod(0)])) == ["Role", "RoleBinding", "ServiceAccount", "ConfigMap"]


def test_the_first_container_trains_where_none_has_the_name() -> None:
    named = [{"name": "side", "image": "i"}, {"name": "mpi", "image": "i"}]
    assert training_container(mpijob(launcher=replica(containers=named)), "Launcher")["name"] == "mpi"
    assert training_container(mpijob(launcher=replica(containers=named[:1])), "Launcher")["name"] == "side"


def test_building_changes_nothing_that_is_shared() -> None:
    job = mpijob(launcher=replica(volumes=[{"name": "data", "emptyDir": {}}]))
    before = repr(job)
    first = build_pod(job, "Launcher", 0), built(job)
    assert (build_pod(job, "Launcher", 0), built(job)) == first
    assert repr(job) == before


def outcome(
    job: Job, launcher: ReplicaStatus, worker: ReplicaStatus, pods: Sequence[JsonObject] = ()
) -> list[ConditionUpdate]:
    return list(KIND.update_job_status(job, {"Launcher": launcher, "Worker": worker}, {"Worker": pods}))


def test_a_worker_that_fails_after_the_launcher_has_succeeded_does_not_matter() -> None:
    (update,) = outcome(mpijob(), ReplicaStatus(succeeded=1), ReplicaStatus(active=1, failed=1))
    assert update.type == SUCCEEDED


@pytest.mark.defect("V1-B10")
@pytest.mark.parametrize("policy", [ON_FAILURE, EXIT_CODE])
def test_failed_replicas_are_restarted_by_their_policy(policy: str) -> None:
    """V1-B10: the original failed the job, or waited for nothing."""
    job = mpijob(launcher={**replica(), "restartPolicy": policy})
    (update,) = outcome(job, ReplicaStatus(failed=1), ReplicaStatus(active=2))
    assert update == ConditionUpdate(RESTARTING, "MPIJob mw is restarting because 1 Launcher replica(s) failed.")


@pytest.mark.defect("V1-B18")
def test_an_eviction_is_told() -> None:
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
def test_workers_count_until_the_launcher_ends(launcher: ReplicaStatus, policy: str, workers: ReplicaStatus) -> None:
    job = mpijob(launcher={**replica(), "restartPolicy": policy})
    counted = KIND.replica_statuses(job, {"Launcher": launcher, "Worker": ReplicaStatus(active=2)})
    assert counted == {"Launcher": launcher, "Worker": workers}


def test_options_choose_the_transport() -> None:
    (kind,) = load_job_kinds(enabled=["MPIJob"], options={"mpijob": {"transport": "ssh"}})
    assert kind.has_services
    (kind,) = load_job_kinds(enabled=["mpijob"])
    assert not kind.has_services
    with pytest.raises(PluginInvalid, match='transport: must be "kubectl-exec" or "ssh", got "rsh"'):
        load_job_kinds(enabled=["mpijob"], options={"mpijob": {"transport": "rsh"}})


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


INVALID, SPECS_INVALID = "MPIReplicaSpec is not valid", "MPIReplicaSpecs is not valid"


@pytest.mark.defect("V1-B18")
@pytest.mark.parametrize(
    ("replicas", "path", "text"),
    [
        (None, "spec.mpiReplicaSpecs", SPECS_INVALID),
        ({}, "[Launcher]", f"{INVALID}: Master ReplicaSpec must be present"),
        ({"Worker": replica(replicas=2)}, "[Launcher]", f"{INVALID}: Master ReplicaSpec must be present"),
        (
            {"Launcher": {"template": {}}},
            "[Launcher].template.spec.containers",
            f"{SPECS_INVALID}: containers definition expected in Launcher",
        ),
        (
            {"Launcher": replica(), "Worker": None},
            "[Worker].template.spec.containers",
            f"{SPECS_INVALID}: containers definition expected in Worker",
        ),
        (
            {"Launcher": replica(), "worker": replica()},
            "[worker]",
            "MPIReplicaType is worker but must be one of [Launcher Worker]",
        ),
        (
            {"Launcher": replica(containers=[{"name": "mpi"}])},
            "[Launcher].template.spec.containers[0].image",
            f"{INVALID}: Image is undefined in the container of Launcher",
        ),
        (
            {
                "Launcher": replica(),
                "Worker": replica(containers=[{"name": "a", "image": "i"}, {"name": "", "image": "i"}]),
            },
            "[Worker].template.spec.containers[1].name",
            f"{INVALID}: ImageName is undefined in the container of Worker",
        ),
        ({"Launcher": replica(replicas=0)}, "[Launcher].replicas", f"{INVALID}: There must be only 1 launcher replica"),
    ],
)
def test_what_is_wrong_is_told_as_the_original_does(replicas: JsonObject | None, path: str, text: str) -> None:
    """V1-B18: by field, and in the recorded words for the event."""
    found = errors(parsed(KIND, {"mpiReplicaSpecs": replicas}))
    assert [each.detail for each in found] == [text]
    assert found[0].path.removeprefix("spec.mpiReplicaSpecs") in (path, "")
    assert KIND.refusal(found) == text


def test_errors_of_all_kinds_are_told_in_full() -> None:
    assert KIND.refusal([FieldError("metadata.name", "should match", value="A")]) == (
        'metadata.name: Invalid value: "A": should match'
    )


@pytest.mark.parametrize("kind", [KIND, SSH])
def test_hosts_that_do_not_fit_into_a_config_map_are_too_many(kind: MPIJob) -> None:
    (error,) = errors(mpijob(kind, workers=2**31 - 1))
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
