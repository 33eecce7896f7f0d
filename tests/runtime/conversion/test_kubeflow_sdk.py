"""The published Kubeflow SDK lists a namespace that has what we convert and what we show: it raises for none of it."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.conversions import built, converted, pods, recorded

from trainmaster.controller.cli.files.manifests import Manifest, scan_manifests
from trainmaster.runtime.conversion.early_trainer import convert_early
from trainmaster.runtime.jsontree import JsonObject

backend = pytest.importorskip(
    "kubeflow.trainer.backends.kubernetes.backend", reason="`kubeflow` is not installed; `make test` installs it"
)
client = pytest.importorskip("kubernetes.client")

ROOT = Path(__file__).resolve().parents[3]
VALID = [name for name, case in recorded().items() if not case.get("refused")]
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
PLURALS = {
    "trainjobs": "TrainJob",
    "trainingruntimes": "TrainingRuntime",
    "clustertrainingruntimes": "ClusterTrainingRuntime",
}
KINDS = set(PLURALS.values())


class Answered:
    """What a thread of the client comes back with."""

    def __init__(self, body: Any) -> None:
        self._body = body

    def get(self, _timeout: float) -> Any:
        if self._body is None:
            raise client.ApiException(status=404)
        return self._body


class Namespace:
    """The objects of a namespace, and of the cluster, as the clients of the SDK get them."""

    def __init__(self, objects: Iterable[JsonObject], jobsets: Iterable[JsonObject] = ()) -> None:
        self._objects = list(objects)
        self._pods = {each["metadata"]["name"]: [*_pods_of(each)] for each in jobsets}
        for obj in self._objects:
            obj["metadata"].setdefault("name", "generated")
            obj["metadata"] |= {"namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"}

    def list_namespaced_custom_object(self, _group: str, _version: str, _namespace: str, plural: str, **_: Any) -> Any:
        items = [each for each in self._objects if each["kind"] == PLURALS[plural]]
        return Answered({"kind": f"{PLURALS[plural]}List", "metadata": {}, "items": items})

    def list_cluster_custom_object(self, group: str, version: str, plural: str, **_: Any) -> Any:
        return self.list_namespaced_custom_object(group, version, "", plural)

    def get_namespaced_custom_object(self, _g: str, _v: str, _ns: str, plural: str, name: str, **_: Any) -> Any:
        found = (each for each in self._objects if each["kind"] == PLURALS[plural])
        return Answered(next((each for each in found if each["metadata"]["name"] == name), None))

    def get_cluster_custom_object(self, group: str, version: str, plural: str, name: str, **_: Any) -> Any:
        return self.get_namespaced_custom_object(group, version, "", plural, name)

    def list_namespaced_pod(self, _namespace: str, *, label_selector: str, **_: Any) -> Any:
        items = self._pods.get(label_selector.partition(",")[0].partition("=")[2], [])
        answer = SimpleNamespace(data=json.dumps({"kind": "PodList", "metadata": {}, "items": items}))
        return Answered(client.ApiClient().deserialize(answer, "V1PodList"))


def _pods_of(jobset: JsonObject) -> Iterator[JsonObject]:
    name = jobset["metadata"]["name"]
    for host, spec, fields in pods(jobset):
        pod = host.partition(".")[0]
        labels = {
            "jobset.sigs.k8s.io/replicatedjob-name": pod.removeprefix(f"{name}-").rsplit("-", 2)[0],
            "batch.kubernetes.io/job-completion-index": fields[INDEX],
        }
        metadata = {"name": pod, "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
        yield {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def listed(*objects: JsonObject, jobsets: Iterable[JsonObject] = ()) -> tuple[list[Any], list[Any]]:
    """The runtimes and the TrainJobs that the SDK lists."""
    made = backend.KubernetesBackend.__new__(backend.KubernetesBackend)
    made.namespace = "team"
    made.custom_api = made.core_api = Namespace(objects, jobsets)
    return made.list_runtimes(), made.list_jobs()


@pytest.mark.parametrize("name", VALID)
def test_a_converted_job_is_listed(name: str) -> None:
    conversion = converted(recorded()[name])
    (runtime,), (job,) = listed(*conversion.objects, jobsets=[built(conversion)])
    assert (runtime.name, job.name, job.runtime) == (job.name, recorded()[name]["job"]["metadata"]["name"], runtime)
    assert runtime.trainer.image


def test_a_converted_runtime_of_an_early_version_is_listed() -> None:
    text = """
    {"apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainingRuntime", "metadata": {"name": "early"},
     "spec": {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": [{"name": "trainer-node",
      "template": {"spec": {"template": {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}}}}]}}}}
    """
    (runtime,), _ = listed(*convert_early(json.loads(text)).objects)
    assert (runtime.name, runtime.trainer.num_nodes) == ("early", 2)


def test_the_examples_and_the_built_in_runtimes_are_listed() -> None:
    files = [str(ROOT / "examples"), str(ROOT / "deploy/runtimes")]
    objects = [each.object for each in scan_manifests(files) if isinstance(each, Manifest) and each.kind in KINDS]
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    runtimes, jobs = listed(*objects)
    assert {each.name for each in runtimes} == {name for kind, name in names if kind != "TrainJob"}
    assert {each.name for each in jobs} == {name for kind, name in names if kind == "TrainJob"}
