"""TrainJobStatus: what a trainer finds to report its progress."""

from typing import Any

import pytest
from support.objects import replicated_job, runtime, trainjob
from support.resolutions import FakeListers, Runtime, entropy, env, job_spec

from trainmaster.plugins.trainjobstatus import TrainJobStatus
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework import Framework, PluginFailed, load_plugins
from trainmaster.runtime.framework.interface import ApplyWhen, Desired
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS, Listers
from trainmaster.runtime.ownership import owner_reference
from trainmaster.runtime.resolver import resolve

SERVER = "https://kubeflow-trainer-controller-manager.kubeflow-system.svc:10443"
VARIABLES = {
    "KUBEFLOW_TRAINER_SERVER_URL": f"{SERVER}/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/demo/status",
    "KUBEFLOW_TRAINER_SERVER_CA_CERT": "/var/run/secrets/kubeflow/trainer/ca.crt",
    "KUBEFLOW_TRAINER_SERVER_TOKEN": "/var/run/secrets/kubeflow/trainer/token",
}
MOUNT = {"name": "kubeflow-trainer-token", "mountPath": "/var/run/secrets/kubeflow/trainer", "readOnly": True}


def framework(authority: str | None = "PEM") -> Framework:
    options: dict[str, dict[str, Any]] = {name: {"entropy": entropy} for name in ("mpi", "flux")}
    options["trainjobstatus"] = {"server": SERVER, "authority": lambda: authority}
    return Framework(load_plugins(options=options, features=frozenset({"TrainJobStatus"})))


def built(
    job: TrainJob, on: Runtime, *, authority: str | None = "PEM", listers: Listers = NO_LISTERS
) -> dict[str, Desired]:
    resolution = resolve(job, on, framework(authority), listers=listers)
    return {desired.identity[1]: desired for desired in resolution.objects}


def pod(objects: dict[str, Desired], index: int = 0) -> JsonObject:
    found: JsonObject = job_spec(objects["JobSet"].object, index)["template"]["spec"]
    return found


def test_a_closed_gate_leaves_the_plugin_out() -> None:
    assert "TrainJobStatus" not in [plugin.name for plugin in load_plugins()]
    assert "trainjobstatus" in framework().order()["build"]


def test_every_container_of_the_trainer_is_told_where_to_report() -> None:
    containers: list[JsonObject] = [{"name": "node", "image": "i"}, {"name": "side", "image": "i"}]
    containers[0]["env"] = [{"name": "MINE", "value": "1"}]
    node, side = pod(built(trainjob(), runtime(replicated_job(containers=containers))))["containers"]
    assert env(node) == {"MINE": "1", **VARIABLES}
    assert env(side) == VARIABLES
    assert node["volumeMounts"] == side["volumeMounts"] == [MOUNT]


def test_init_containers_and_other_steps_are_left_alone() -> None:
    trainer = replicated_job()
    trainer["template"]["spec"]["template"]["spec"]["initContainers"] = [{"name": "first", "image": "i"}]
    initializer = replicated_job("data", ancestor="dataset-initializer", containers=[{"name": "x", "image": "i"}])
    objects = built(trainjob(), runtime(trainer, initializer))
    (first,) = pod(objects)["initContainers"]
    assert not {"env", "volumeMounts"} & first.keys()
    assert "volumes" not in pod(objects, 1)


def test_the_token_is_for_the_status_of_this_trainjob() -> None:
    (volume,) = pod(built(trainjob(), runtime()))["volumes"]
    token, authority = volume["projected"]["sources"]
    assert volume["name"] == "kubeflow-trainer-token"
    assert token["serviceAccountToken"] == {
        "audience": "trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/demo/status",
        "expirationSeconds": 3600,
        "path": "token",
    }
    assert authority["configMap"] == {"name": "demo-tls-config", "items": [{"key": "ca.crt", "path": "ca.crt"}]}


def test_the_variables_of_a_user_with_these_names_are_replaced() -> None:
    job = trainjob(trainer={"env": [{"name": "MINE", "value": "1"}]})
    containers = [{"name": "node", "image": "i", "env": [{"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "http://x"}]}]
    (node,) = pod(built(job, runtime(replicated_job(containers=containers))))["containers"]
    assert env(node) == {**VARIABLES, "MINE": "1"}


@pytest.mark.defect("S6")
def test_the_authority_follows_also_while_the_trainjob_runs() -> None:
    config_map = built(trainjob(), runtime())["ConfigMap"]
    assert config_map.when is ApplyWhen.ALWAYS
    assert config_map.object["data"] == {"ca.crt": "PEM"}
    assert config_map.object["metadata"]["name"] == "demo-tls-config"


def test_without_an_authority_a_trainjob_that_needs_it_waits() -> None:
    with pytest.raises(PluginFailed, match=r"failed to find status server ca\.crt") as caught:
        built(trainjob(), runtime(), authority=None)
    assert caught.value.rejected
    assert caught.value.not_ready


def test_without_an_authority_a_trainjob_that_had_one_goes_on() -> None:
    job = trainjob()
    metadata = {"name": "demo-tls-config", "namespace": "team", "ownerReferences": [owner_reference(job)]}
    known = FakeListers({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    assert "JobSet" in built(job, runtime(), authority=None, listers=known)
    del metadata["ownerReferences"]
    with pytest.raises(PluginFailed):
        built(job, runtime(), authority=None, listers=known)


def test_without_a_trainer_nothing_is_needed() -> None:
    objects = built(trainjob(), runtime(replicated_job("data", ancestor="dataset-initializer")), authority=None)
    assert set(objects) == {"JobSet"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"server": "http://x", "authority": lambda: None}, "must be an https:// URL"),
        ({"server": SERVER, "authority": "PEM"}, "must be a function"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        TrainJobStatus(**options)
