"""The built-in plugins conform, as plugins of others have to: each by the suite that their authors derive from."""

from typing import Any

import pytest

from trainmaster.plugins.claims import Claims
from trainmaster.plugins.coscheduling import CoScheduling
from trainmaster.plugins.flux import Flux
from trainmaster.plugins.jax import JAX
from trainmaster.plugins.jobset import JobSet
from trainmaster.plugins.mpi import MPI
from trainmaster.plugins.plainml import PlainML
from trainmaster.plugins.resilience import Resilience
from trainmaster.plugins.slices import Slices
from trainmaster.plugins.torch import Torch
from trainmaster.plugins.trainjobstatus import TrainJobStatus
from trainmaster.plugins.volcano import Volcano
from trainmaster.plugins.workload import Workload
from trainmaster.plugins.xgboost import XGBoost
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.testing import PluginConformance, replicated_job

for _costly in (
    PluginConformance.test_it_is_deterministic_across_processes,
    PluginConformance.test_it_stands_hostile_sizes,
    PluginConformance.test_it_stands_two_calls_at_once,
    PluginConformance.test_it_stays_in_its_budget,
    PluginConformance.test_it_survives_definitions,
    PluginConformance.test_it_uses_its_rights,
):
    pytest.mark.nightly(_costly)

RESOURCES = {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}}
JOBS: tuple[JsonObject, ...] = (
    {},
    {"trainer": {"numNodes": 3, "image": "mine:2", "command": ["python", "train.py"], "args": ["--fast"]}},
    {"trainer": {"env": [{"name": "MINE", "value": "1"}], "resourcesPerNode": RESOURCES}},
)


def template(*jobs: Any) -> Any:
    return {"spec": {"replicatedJobs": list(jobs)}}


class TestTorch(PluginConformance):
    plugin = Torch
    runtime = {"mlPolicy": {"numNodes": 2, "torch": {"numProcPerNode": "auto"}}}
    jobs = (*JOBS, {"trainer": {"numProcPerNode": 2}})


class TestJAX(PluginConformance):
    plugin = JAX
    runtime = {"mlPolicy": {"numNodes": 2, "jax": {}}}
    jobs = JOBS


class TestResilience(PluginConformance):
    plugin = Resilience
    runtime = {
        "mlPolicy": {"numNodes": 2, "torch": {}},
        "resiliencePolicy": {"maxRestarts": 3, "exitCodes": {"retry": [75]}, "gracePeriod": "90s"},
    }
    jobs = (*JOBS, {"resiliencePolicy": {"disruptions": "Count"}})


class TestWorkload(PluginConformance):
    plugin = Workload
    runtime = {
        "mlPolicy": {"numNodes": 2, "jax": {}},
        "scheduling": {"schedulingConstraints": {"topology": [{"key": "rack"}]}, "disruptionMode": "PodGroup"},
    }
    jobs = JOBS


class TestXGBoost(PluginConformance):
    plugin = XGBoost
    runtime = {"mlPolicy": {"numNodes": 2, "xgboost": {}}}
    jobs = JOBS


class TestMPI(PluginConformance):
    plugin = MPI
    runtime = {
        "mlPolicy": {"numNodes": 2, "mpi": {"numProcPerNode": 2, "runLauncherAsNode": True}},
        "template": template(
            replicated_job("launcher", containers=[{"name": "node", "image": "mpi:1"}]),
            replicated_job("node", ancestor=None),
        ),
    }
    jobs = JOBS


class TestFlux(PluginConformance):
    plugin = Flux
    runtime = {"mlPolicy": {"numNodes": 2, "flux": {"numProcPerNode": 1}}}
    jobs = ({"trainer": {"command": ["python", "train.py"]}}, {"trainer": {"numNodes": 3, "command": ["true"]}})


class TestPlainML(PluginConformance):
    plugin = PlainML
    runtime = {"mlPolicy": {"numNodes": 2}}
    jobs = JOBS


class TestSlices(PluginConformance):
    plugin = Slices
    runtime = {"mlPolicy": {"numNodes": 4, "torch": {}}, "template": template(replicated_job("node", replicas=2))}
    jobs = ({}, {"trainer": {"numNodes": 8, "command": ["python", "train.py"]}})


DEVICES = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}


def of_claims(kind: str, name: str, spec: JsonObject) -> JsonObject:
    metadata = {"name": name, "namespace": "team"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


class TestClaims(PluginConformance):
    plugin = Claims
    runtime = {"mlPolicy": {"numNodes": 2, "torch": {}}}
    jobs = (
        {"trainer": {"resourceClaimsPerNode": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]}},
        {"trainer": {"resourceClaimsPerNode": [{"name": "gpu", "resourceClaimName": "mine"}]}},
    )
    objects = (
        of_claims("ResourceClaimTemplate", "gpus", {"spec": DEVICES}),
        of_claims("ResourceClaim", "mine", DEVICES),
    )


GANG_OBJECTS = (
    {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits", "namespace": "team"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]},
    },
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"},
        "handler": "runsc",
        "overhead": {"podFixed": {"cpu": "10m"}},
    },
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1},
)


def gang_node() -> Any:
    node = replicated_job()
    node["template"]["spec"]["template"]["spec"] |= {"runtimeClassName": "gvisor", "priorityClassName": "high"}
    return node


class TestCoScheduling(PluginConformance):
    plugin = CoScheduling
    runtime = {
        "mlPolicy": {"numNodes": 2, "torch": {}},
        "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 30}},
        "template": template(gang_node()),
    }
    jobs = JOBS
    objects = GANG_OBJECTS


class TestVolcano(PluginConformance):
    plugin = Volcano
    runtime = {
        "mlPolicy": {"numNodes": 2, "torch": {}},
        "podGroupPolicy": {"volcano": {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}},
        "template": {
            "metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "research"}},
            **template(gang_node()),
        },
    }
    jobs = JOBS
    objects = GANG_OBJECTS


class TestTrainJobStatus(PluginConformance):
    plugin = TrainJobStatus
    options = {"server": "https://status.example:10443", "authority": lambda: "PEM"}
    runtime = {"mlPolicy": {"numNodes": 2, "torch": {}}}
    jobs = JOBS


class TestJobSet(PluginConformance):
    plugin = JobSet
    runtime = {
        "mlPolicy": {"numNodes": 2, "torch": {}},
        "template": template(replicated_job("dataset-initializer", ancestor="dataset-initializer"), replicated_job()),
    }
    jobs = JOBS


def test_every_built_in_plugin_is_here() -> None:
    tested = {suite.plugin.name for suite in PluginConformance.__subclasses__() if suite.__module__ == __name__}
    assert tested == {point.name for point in discover() if point.dist is not None and point.dist.name == "trainmaster"}
