"""The API server, JobSet's webhook and its controller refuse what is said to be refused, and nothing earlier."""

import copy
import functools
from importlib import resources

import pytest
from support.devcluster.stepper import Stepper
from support.jobset_faults import GAPS, JOB_FAULTS, JOBSET_FAULTS
from support.objects import replicated_job, runtime, trainjob
from support.resolutions import jobset

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import CRDS, JOBS, JOBSETS
from trainmaster.devcluster.controllers.jobset.controller import JobSetController
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml


@functools.cache
def definition() -> JsonObject:
    path = resources.files("trainmaster.devcluster.crds") / "jobset.x-k8s.io_jobsets.yaml"
    loaded: JsonObject = load_yaml(path.read_bytes())
    return loaded


@pytest.fixture
async def cluster() -> Stepper:
    """A cluster of API server and JobSet."""
    stepper = Stepper()
    await stepper.namespace("team")
    await stepper.api.create(CRDS, copy.deepcopy(definition()))
    stepper.start(JobSetController(stepper.api))
    return stepper


async def create(cluster: Stepper, job: JsonObject) -> None:
    """Create the JobSet of a TrainJob on a runtime of this ReplicatedJob."""
    obj = jobset(trainjob(), runtime(job))
    del obj["metadata"]["ownerReferences"]
    await cluster.api.create(JOBSETS, obj, namespace="team")
    await cluster.settle()


async def test_what_is_fine_gets_its_job(cluster: Stepper) -> None:
    await create(cluster, replicated_job())
    assert [job["metadata"]["name"] for job in cluster.objects(JOBS)] == ["demo-node-0"]


@pytest.mark.parametrize(("job", "problem"), JOBSET_FAULTS)
async def test_the_jobset_is_refused(cluster: Stepper, job: JsonObject, problem: str) -> None:
    with pytest.raises(StatusError):
        await create(cluster, job)


@pytest.mark.parametrize(("job", "problem"), [*JOB_FAULTS, *GAPS])
async def test_the_jobset_is_taken_and_its_job_is_refused(cluster: Stepper, job: JsonObject, problem: str) -> None:
    await create(cluster, job)
    assert cluster.objects(JOBS) == []
    assert "JobCreationFailed" in cluster.reasons("demo")
