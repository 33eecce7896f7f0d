"""RayTrainJobs keep to the interface of job kinds, and do what is theirs."""

from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from acme_jobs import RayTrainJob

from trainmaster.runtime.jobs.conformance import check_job_kind
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jobs.types import ReplicaStatus

JOB, DEFINITION = (yaml.safe_load((Path(__file__).parent / name).read_text()) for name in ("job.yaml", "crd.yaml"))
ALONE = {**JOB, "spec": {"rayReplicaSpecs": {"Head": JOB["spec"]["rayReplicaSpecs"]["Head"]}}}


def test_the_kind_conforms() -> None:
    check_job_kind("raytrainjob", [JOB, ALONE], definition=DEFINITION)
    check_job_kind("raytrainjob", [JOB], options={"workerCommand": ["join"]})


def test_workers_join_the_head() -> None:
    job = parse_job(RayTrainJob(), JOB)
    head, worker = (build_pod(job, each, 0)["spec"]["containers"][0] for each in ("Head", "Worker"))
    assert head["env"] == [{"name": "RAY_MIN_WORKERS", "value": "2"}]
    assert worker["env"] == [{"name": "RAY_ADDRESS", "value": "digits-head-0:6379"}]
    assert worker["command"][-1] == "exec ray start --address=$RAY_ADDRESS --block"


@pytest.mark.parametrize(("lost", "conditions"), [(0, ["Running"]), (1, ["Running"]), (2, ["Running", "Failed"])])
def test_a_worker_may_be_lost_if_enough_are_left(lost: int, conditions: list[str]) -> None:
    raw = deepcopy(JOB)
    raw["spec"]["rayReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    replicas = {"Head": ReplicaStatus(active=1), "Worker": ReplicaStatus(active=3 - lost, failed=lost)}
    updates = RayTrainJob().update_job_status(parse_job(RayTrainJob(), raw), replicas, {})
    assert [each.type for each in updates] == conditions
