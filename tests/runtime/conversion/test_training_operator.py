"""Recorded jobs of Training Operator V1, and generated ones: no field is dropped, what they become is valid."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conversions import (
    JOB_KINDS,
    built,
    convert_job,
    converted,
    environment,
    expected_environment,
    new_host,
    pods,
    problems,
    recorded,
)

from trainmaster.runtime.conversion.notes import ConversionError
from trainmaster.runtime.conversion.source import leaves
from trainmaster.runtime.conversion.training_operator import KINDS
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.yamltext import load_yaml


class Values:
    """Texts and numbers, each of which is unique, so that it is known again wherever it goes."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1001)

    def text(self) -> str:
        """A text."""
        return f"t{next(self._numbers)}x"

    def number(self) -> int:
        """A number."""
        return next(self._numbers)


def _some(draw: st.DrawFn, fields: JsonObject) -> JsonObject:
    """Some of these fields."""
    return {name: value for name, value in fields.items() if draw(st.booleans())}


def _container(draw: st.DrawFn, values: Values, name: str) -> JsonObject:
    more = {
        "command": [values.text(), values.text()],
        "args": [values.text()],
        "env": [
            {"name": values.text(), "value": values.text()},
            {"name": "RANK", "value": values.text()},
            {"name": "PET_NODE_RANK", "value": values.text()},
            {"name": "OMPI_MCA_plm_rsh_args", "value": values.text()},
            {"name": "I_MPI_FABRICS", "value": values.text()},
            {"name": "DMLC_TASK_ID", "value": values.text()},
            {"name": values.text(), "valueFrom": {"secretKeyRef": {"name": values.text(), "key": values.text()}}},
        ],
        "envFrom": [{"configMapRef": {"name": values.text()}}],
        "ports": [{"name": "extra", "containerPort": values.number()}],
        "resources": {"requests": {"cpu": str(values.number())}, "limits": {"nvidia.com/gpu": str(values.number())}},
        "volumeMounts": [{"name": "v", "mountPath": f"/{values.text()}"}],
        "securityContext": {"runAsUser": values.number()},
        "workingDir": f"/{values.text()}",
        "readinessProbe": {"exec": {"command": [values.text()]}},
        "imagePullPolicy": "Always",
    }
    return {"name": name, "image": values.text(), **_some(draw, more)}


def _template(draw: st.DrawFn, values: Values, main: str) -> JsonObject:
    metadata = {
        "labels": {values.text(): values.text()},
        "annotations": {values.text(): values.text()},
        "finalizers": [f"example.com/{values.text()}"],
        "name": values.text(),
    }
    names = [main, *draw(st.sampled_from([[], ["side"], ["node"]]))]
    first = draw(st.sampled_from(["init", "node"])) if "node" not in names else "init"
    pod_spec = {
        "initContainers": [_container(draw, values, first)],
        "nodeSelector": {values.text(): values.text()},
        "tolerations": [{"key": values.text(), "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_preference(values)]}},
        "serviceAccountName": values.text(),
        "imagePullSecrets": [{"name": values.text()}],
        "priorityClassName": values.text(),
        "schedulerName": values.text(),
        "runtimeClassName": values.text(),
        "restartPolicy": "Always",
        "hostname": values.text(),
        "subdomain": values.text(),
        "terminationGracePeriodSeconds": values.number(),
        "volumes": [{"name": "v", "hostPath": {"path": f"/{values.text()}"}}],
        "topologySpreadConstraints": [_spread(values)],
        "dnsConfig": {"nameservers": [values.text()]},
    }
    containers = [_container(draw, values, name) for name in draw(st.permutations(names))]
    return {"metadata": _some(draw, metadata), "spec": {"containers": containers, **_some(draw, pod_spec)}}


def _preference(values: Values) -> JsonObject:
    expression = {"key": values.text(), "operator": "In", "values": [values.text()]}
    return {"weight": 7, "preference": {"matchExpressions": [expression]}}


def _spread(values: Values) -> JsonObject:
    return {
        "maxSkew": 7,
        "topologyKey": values.text(),
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"training.kubeflow.org/job-role": "master"}},
    }


def _own_fields(draw: st.DrawFn, values: Values, kind: str) -> JsonObject:
    """What only one kind has in its spec."""
    if kind == "PyTorchJob":
        elastic = {
            "minReplicas": values.number(),
            "maxReplicas": values.number(),
            "rdzvBackend": values.text(),
            "rdzvPort": values.number(),
            "rdzvHost": values.text(),
            "rdzvId": values.text(),
            "rdzvConf": [{"key": values.text(), "value": values.text()}],
            "standalone": True,
            "maxRestarts": values.number(),
            "metrics": [{"type": "Resource", "resource": {"name": values.text()}}],
        }
        processes = draw(st.sampled_from(["auto", "cpu", "gpu", str(values.number()), values.text()]))
        return {"nprocPerNode": processes, "elasticPolicy": _some(draw, elastic)}
    if kind == "TFJob":
        return {"successPolicy": draw(st.sampled_from(["", "AllWorkers"])), "enableDynamicWorker": True}
    if kind == "PaddleJob":
        return {"elasticPolicy": {"minReplicas": values.number(), "metrics": [{"type": values.text()}]}}
    if kind == "MPIJob":
        return {"slotsPerWorker": values.number(), "cleanPodPolicy": "Running", "mainContainer": "mpi"}
    return {}


@st.composite
def jobs(draw: st.DrawFn) -> JsonObject:
    """A job of any kind, each of whose values is unique."""
    kind = JOB_KINDS[draw(st.sampled_from(sorted(JOB_KINDS)))]
    values = Values()
    wanted = [each for each in kind.replica_types if draw(st.booleans())]
    required = {"XGBoostJob": "Master", "MPIJob": "Launcher"}.get(kind.kind, "")
    if required and required not in wanted:
        wanted.append(required)
    if {"Chief", "Master"} <= set(wanted):
        wanted.remove("Chief")
    wanted = wanted or ["Worker"]
    single = {"PyTorchJob": "Master"}.get(kind.kind, required)
    decisive = single if single in wanted else wanted[0]
    shared = _template(draw, values, kind.container_name) if draw(st.booleans()) else None
    specs = {}
    for each in wanted:
        specs[each] = {
            "replicas": 1 if each == single else draw(st.integers(each == decisive or kind.kind == "PyTorchJob", 4)),
            "template": copy_tree(shared) if shared else _template(draw, values, kind.container_name),
            **_some(draw, {"restartPolicy": draw(st.sampled_from(["Always", "OnFailure", "Never", "ExitCode"]))}),
        }
    run_policy = {
        "cleanPodPolicy": draw(st.sampled_from(["All", "Running", "None"])),
        "ttlSecondsAfterFinished": values.number(),
        "activeDeadlineSeconds": draw(st.sampled_from([values.number(), 0])),
        "backoffLimit": values.number(),
        "suspend": True,
        "managedBy": draw(st.sampled_from(["kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"])),
        "schedulingPolicy": _some(
            draw,
            {
                "minAvailable": values.number(),
                "queue": values.text(),
                "minResources": {"cpu": str(values.number())},
                "priorityClass": values.text(),
                "scheduleTimeoutSeconds": values.number(),
            },
        ),
    }
    own = _own_fields(draw, values, kind.kind)
    if "Worker" not in wanted:
        own.pop("elasticPolicy", None)
    metadata = {
        "namespace": values.text(),
        "labels": {"kueue.x-k8s.io/queue-name": values.text()},
        "annotations": {
            values.text(): values.text(),
            "kubectl.kubernetes.io/last-applied-configuration": values.text(),
        },
        "finalizers": [values.text()],
        "uid": values.text(),
        "resourceVersion": values.text(),
        "generation": values.number(),
        "creationTimestamp": values.text(),
    }
    unknown = {
        values.text(): draw(st.sampled_from([values.text(), [values.number()], {"deep": [{"er": values.text()}]}]))
    }
    spec: JsonObject = {
        **_some(draw, own),
        **_some(draw, {"runPolicy": _some(draw, run_policy)}),
        kind.replica_specs_field: specs,
    }
    place = draw(st.sampled_from([None, spec, specs[wanted[0]]]))
    if place is not None:
        place |= unknown
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind.kind,
        "metadata": {"name": "job", **_some(draw, metadata)},
        "spec": spec,
    }
    return job | _some(draw, {"status": {"startTime": values.text()}})


VALID = [name for name, case in recorded().items() if not case.get("refused")]
REFUSED = [name for name, case in recorded().items() if case.get("refused")]
WITH_ENVIRONMENT = [name for name in VALID if "environment" in recorded()[name]]

REFUSED_BY_V1_ALONE = {"067-xgb-invalid-master-nil-replicas": "one replica is meant, and there is one"}
"""Jobs that V1 refuses and the conversion understands."""


def test_every_kind_was_recorded() -> None:
    assert {recorded()[name]["job"]["kind"] for name in WITH_ENVIRONMENT} == set(KINDS)


@pytest.mark.parametrize("name", VALID)
def test_a_recorded_job_becomes_a_valid_runtime_and_trainjob(name: str, tmp_path: Path) -> None:
    conversion = converted(recorded()[name])
    assert [obj["kind"] for obj in conversion.objects] == ["TrainingRuntime", "TrainJob"]
    assert {obj["metadata"]["name"] for obj in conversion.objects} == {recorded()[name]["job"]["metadata"]["name"]}
    assert not problems(conversion.objects, tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_what_v1_refused_is_refused(name: str) -> None:
    if name in REFUSED_BY_V1_ALONE:
        assert converted(recorded()[name]).objects
        return
    with pytest.raises(ConversionError):
        converted(recorded()[name])


def test_converting_changes_nothing_of_the_job() -> None:
    for name in VALID:
        job = recorded()[name]["job"]
        before = copy_tree(job)
        first = convert_job(job)
        assert job == before, name
        assert convert_job(job) == first, name


@pytest.mark.parametrize("name", WITH_ENVIRONMENT)
def test_pods_see_the_variables_of_v1_with_the_new_names_of_hosts(name: str) -> None:
    case = recorded()[name]
    conversion = converted(case)
    is_torch = "torch" in conversion.objects[0]["spec"].get("mlPolicy", {})
    jobset = built(conversion)
    hosts = {old: new_host(jobset, case["job"], old) for old in case["environment"]}
    found = {host: (spec, fields) for host, spec, fields in pods(jobset)}
    assert set(hosts.values()) == set(found)
    for old, containers in case["environment"].items():
        spec, fields = found[hosts[old]]
        names = [each["name"] for each in spec["containers"]]
        old_names = list(containers)
        assert len(names) == len(old_names)
        for place, seen in enumerate(containers.values()):
            new = environment(spec["containers"][place], fields)
            wanted = expected_environment(seen, hosts, fields, is_torch=is_torch)
            assert {key: new.get(key) for key in wanted} == wanted, (old, old_names[place])


@settings(max_examples=100)
@given(jobs())
def test_pods_see_what_pods_of_v1_jobs_see(old: JsonObject) -> None:
    kind = JOB_KINDS[old["kind"]]
    job = parse_job(kind, old)
    conversion = convert_job(old)
    is_torch = "torch" in conversion.objects[0]["spec"].get("mlPolicy", {})
    jobset = built(conversion)
    found = {host: (spec, fields) for host, spec, fields in pods(jobset)}
    places = [(type_, index) for type_, each in job.replica_specs.items() for index in range(each.replicas)]
    hosts = {kind.pod_name(job, *place): new_host(jobset, old, kind.pod_name(job, *place)) for place in places}
    assert set(hosts.values()) == set(found)
    for type_, index in places:
        pod = build_pod(job, type_, index)
        spec, fields = found[hosts[pod["metadata"]["name"]]]
        for was, now in zip(pod["spec"]["containers"], spec["containers"], strict=True):
            told = {each["name"]: each.get("value", each.get("valueFrom")) for each in was.get("env", [])}
            told = {name: value for name, value in told.items() if value is None or "secretKeyRef" not in value}
            wanted = expected_environment(told, hosts, fields, is_torch=is_torch)
            seen = environment(now, fields)
            assert {name: seen.get(name) for name in wanted} == wanted, pod["metadata"]["name"]


ROOT = Path(__file__).resolve().parents[3]

MEANT_OTHERWISE = (
    *(r"apiVersion", r"kind"),
    r"spec\.\w+ReplicaSpecs\.\w+\.restartPolicy",  # that of the pods, backoffLimit and podFailurePolicy
    r"spec\.\w+ReplicaSpecs\.\w+\.replicas",  # nodes are counted together
    r"spec\.successPolicy",  # the success policy of the Job
    r"spec\.elasticPolicy\.standalone",  # the variable PET_STANDALONE
    r"spec\.runPolicy\.suspend",
)
"""Paths of leaves whose value is said by other words; each has a test of its own in test_fields.py."""


def _missing(job: JsonObject, gang_scheduler: str) -> Iterator[str]:
    conversion = convert_job(job, gang_scheduler=gang_scheduler)
    output = json.dumps(conversion.objects)
    told = {note.path for note in conversion.notes}
    for path in (path.removeprefix(".") for path in leaves(job, "")):
        if any(re.fullmatch(pattern, path) for pattern in MEANT_OTHERWISE):
            continue
        if any(path == other or path.startswith((f"{other}.", f"{other}[")) for other in told):
            continue
        value = _value(job, path)
        if value in ({}, [], "", None) or isinstance(value, bool):
            continue  # says nothing
        if re.search(rf"(?<![\w]){re.escape(str(value))}(?![\w])", output) is None:
            yield f"{path}: {value!r}"


def _value(job: Any, path: str) -> Any:
    """The value at a path; keys of maps may have dots."""
    if not path:
        return job
    if isinstance(job, list):
        place, _, rest = path.removeprefix("[").partition("]")
        return _value(job[int(place)], rest.removeprefix("."))
    for key in job:
        if path == key or path.startswith((f"{key}.", f"{key}[")):
            return _value(job[key], path.removeprefix(key).removeprefix("."))
    raise AssertionError(path)


@settings(max_examples=150)
@given(jobs(), st.sampled_from(["", "volcano", "scheduler-plugins"]))
def test_every_leaf_is_in_the_output_or_told(job: JsonObject, gang_scheduler: str) -> None:
    assert not list(_missing(job, gang_scheduler))


def test_the_check_finds_what_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that is taken and forgotten fails the test above."""
    specs = {"Worker": {"template": {"spec": {"containers": [{"name": "jax", "image": "i"}]}}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "metadata": {"name": "job"},
        "spec": {"jaxReplicaSpecs": specs, "runPolicy": {"ttlSecondsAfterFinished": 7001}},
    }
    monkeypatch.setattr("trainmaster.runtime.conversion.run_policy._convert_ttl", lambda source, *_: source.take_all())
    assert list(_missing(job, "")) == ["spec.runPolicy.ttlSecondsAfterFinished: 7001"]


@settings(max_examples=40)
@given(jobs(), st.sampled_from(["", "volcano", "scheduler-plugins"]))
def test_every_output_is_valid(tmp_path_factory: pytest.TempPathFactory, job: JsonObject, gang_scheduler: str) -> None:
    objects = convert_job(job, gang_scheduler=gang_scheduler).objects
    directory: Path = tmp_path_factory.mktemp("converted")
    assert not problems(objects, directory)


@pytest.mark.parametrize("kind", sorted(JOB_KINDS))
def test_every_field_of_the_definition_is_known(kind: str) -> None:
    """None is told as one that the kind does not have."""
    definition = load_yaml((ROOT / f"deploy/crds/kubeflow.org_{kind.lower()}s.yaml").read_bytes())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    types = {"XGBoostJob": ["Master", "Worker"], "MPIJob": ["Launcher", "Worker"]}.get(kind, ["Worker"])
    template = {"spec": {"containers": [{"name": JOB_KINDS[kind].container_name, "image": "i"}]}}
    spec = {
        name: _sample(name, field)
        for name, field in schema["properties"].items()
        if name != JOB_KINDS[kind].replica_specs_field
    }
    specs = {each: {"replicas": 1, "restartPolicy": "Never", "template": template} for each in types}
    fields = schema["properties"][JOB_KINDS[kind].replica_specs_field]["additionalProperties"]["properties"]
    assert set(fields) == {"replicas", "restartPolicy", "template"}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "job"},
        "spec": {**spec, JOB_KINDS[kind].replica_specs_field: specs},
    }
    if kind == "PyTorchJob":
        del job["spec"]["nprocPerNode"]  # type: ignore[attr-defined]  # it excludes the older field, which is set
    assert not [note.path for note in convert_job(job).notes if "has no such field" in note.message]


_WORDS = {
    "cleanPodPolicy": "Running",
    "managedBy": "kueue.x-k8s.io/multikueue",
    "successPolicy": "AllWorkers",
    "mainContainer": "mpi",
}


def _sample(name: str, schema: dict[str, Any]) -> Any:
    """Some value of a field."""
    match schema.get("type"):
        case "object" if "properties" in schema:
            return {each: _sample(each, field) for each, field in schema["properties"].items()}
        case "object":
            return {"cpu": "1"}
        case "array":
            return [] if name == "metrics" else [_sample(name, schema["items"])]
        case "integer":
            return 1
        case "boolean":
            return True
        case _:
            return _WORDS.get(name, "some")
