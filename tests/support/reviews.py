"""Odd AdmissionReviews: objects from the schemas of the definitions, then spoilt."""

import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from trainmaster.controller.webhooks.handlers import (
    MUTATE_TRAINJOB,
    VALIDATE_CLUSTER_TRAINING_RUNTIME,
    VALIDATE_TRAINING_RUNTIME,
    VALIDATE_TRAINJOB,
    validate_job_path,
)
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.yamltext import load_yaml

DEFINITIONS = Path(__file__).parents[2] / "deploy/crds"
KINDS = {
    MUTATE_TRAINJOB: "TrainJob",
    VALIDATE_TRAINJOB: "TrainJob",
    VALIDATE_TRAINING_RUNTIME: "TrainingRuntime",
    VALIDATE_CLUSTER_TRAINING_RUNTIME: "ClusterTrainingRuntime",
}
TEXTS = (
    *("", "a", "node", "trainer", "rt", "launcher", "dataset-initializer", "acme.io/a", "auto", "TrainingRuntime"),
    *("kubeflow.org", "1", "500m", "1Gi", "9" * 30, "hf://a/b", "cache://x", "2024-01-01T00:00:00Z"),
    *("Ü\u2028", "x" * 300),
)
NUMBERS = (0, 1, 2, 3, -1, 100, 70_000, 2**31 - 1, 2**31, 2**63, 1.5, -0.0, 1e300)
ODD: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], [None], {"": None}, {"name": 1}, "", 0, -1, 1.5, "x" * 5000, 2**63),
    *("\x00\x1b", "\u2028\ufeff", "日本\U0001f600"),
)
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


@cache
def _schema(kind: str) -> JsonObject:
    (path,) = DEFINITIONS.glob(f"*_{kind.lower()}s.yaml")
    definition = load_yaml(path.read_bytes())
    schema: JsonObject = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


class Reviews:
    """An endless stream of them, the same for the same seed."""

    kinds: Mapping[str, str] = KINDS
    """By path."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __iter__(self) -> Iterator[tuple[str, str, bytes]]:
        """Paths, uids and bodies."""
        paths = list(self.kinds)
        while True:
            path = self._random.choice(paths)
            uid = f"uid-{self._random.randrange(10**9)}"
            yield path, uid, self._body(self.kinds[path], uid)

    def runtime(self) -> JsonObject:
        """A runtime, as the caches of a webhook may have it: it has passed its schema, more or less."""
        return self._spoilt(self._object("TrainingRuntime"), times=self._random.choice((0, 0, 0, 1)))

    def odd_object(self, kind: str) -> JsonObject:
        """An object of a kind, spoilt more or less."""
        return self._spoilt(self._object(kind), times=self._random.randrange(4))

    def _body(self, kind: str, uid: str) -> bytes:
        obj = self._spoilt(self._object(kind), times=self._random.randrange(4))
        request: JsonObject = {"uid": uid, "operation": "CREATE", "object": obj}
        if self._random.random() < 0.4:
            old = self._spoilt(obj, times=self._random.randrange(3))
            request |= {"operation": "UPDATE", "oldObject": old}
        return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})

    def _object(self, kind: str) -> JsonObject:
        """An object that could be meant: a skeleton, with whatever the schema allows around it."""
        rich = self._random.choice((0.0, 0.05, 0.15))
        spec = self._instance(_schema(kind), rich, depth=0) or {}
        if kind == "TrainJob":
            spec["runtimeRef"] = {"name": "rt", "kind": "TrainingRuntime", **(spec.get("runtimeRef") or {})}
            if self._random.random() < 0.7:
                spec["runtimeRef"] |= {"name": "rt", "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
                spec.pop("managedBy", None)
        elif self._random.random() < 0.9:
            policy = self._random.choice(("torch", "jax", "mpi", "xgboost", "flux"))
            spec["mlPolicy"] = {policy: (spec.get("mlPolicy") or {}).get(policy) or {}}
            jobs = [self._job(name) for name in self._random.sample(("node", "launcher", "dataset-initializer"), 2)]
            template = spec.setdefault("template", {})
            template["spec"] = {**(template.get("spec") or {}), "replicatedJobs": jobs}
        metadata = {"name": self._random.choice(("rt", "demo", "a" * 60)), "namespace": "team", "uid": "u"}
        return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}

    def _job(self, name: str) -> JsonObject:
        container = {"name": "node" if name == "launcher" else name, "image": "i"}
        label = self._random.choice(("trainer", name))
        pods = {"spec": {"containers": [container]}}
        return {"name": name, "template": {"metadata": {"labels": {STEP: label}}, "spec": {"template": pods}}}

    def _instance(self, schema: JsonObject, rich: float, depth: int) -> Any:
        """A value that has the type that a schema wants."""
        if depth > 14:
            return None
        match schema.get("type"):
            case "object":
                required = schema.get("required") or ()
                properties: JsonObject = schema.get("properties") or {}
                chosen = {
                    name: self._instance(below, rich, depth + 1)
                    for name, below in properties.items()
                    if name in required or self._random.random() < max(rich, 0.35 if depth < 2 else 0.0)
                }
                more = schema.get("additionalProperties")
                if isinstance(more, dict) and self._random.random() < 0.5:
                    chosen[self._random.choice(TEXTS)] = self._instance(more, rich, depth + 1)
                return chosen
            case "array":
                return [self._instance(schema["items"], rich, depth + 1) for _ in range(self._random.randrange(3))]
            case "string":
                return self._random.choice(schema.get("enum") or TEXTS)
            case "boolean":
                return self._random.random() < 0.5
        return self._random.choice((*NUMBERS, "auto") if schema.get("x-kubernetes-int-or-string") else NUMBERS)

    def _spoilt(self, obj: JsonObject, *, times: int) -> JsonObject:
        """Change places of an object into something odd, take them away, or do them twice."""
        spoilt: JsonObject = copy_tree(obj)
        for _ in range(times):
            holder: Any = spoilt
            for _ in range(self._random.randrange(14)):
                keys = list(holder) if isinstance(holder, dict) else range(len(holder))
                below = [holder[key] for key in keys if isinstance(holder[key], dict | list) and holder[key]]
                if not below:
                    break
                holder = self._random.choice(below)
            self._spoil(holder)
        return spoilt

    def _spoil(self, holder: Any) -> None:
        if not holder:
            return
        key = self._random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        match self._random.randrange(4):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(copy_tree(holder[key]))
            case 2 if isinstance(holder, dict):
                holder[self._random.choice(TEXTS)] = copy_tree(self._random.choice(ODD))
            case _:
                holder[key] = copy_tree(self._random.choice(ODD))


class JobReviews(Reviews):
    """Those of jobs of `kubeflow.org/v1`."""

    _KINDS = {kind.kind: kind for kind in load_job_kinds()}  # noqa: RUF012 - nobody changes it
    kinds = {validate_job_path(kind): kind.kind for kind in _KINDS.values()}  # noqa: RUF012 - as above

    def _object(self, kind: str) -> JsonObject:
        served, rich = self._KINDS[kind], self._random.choice((0.0, 0.05, 0.1))
        spec = self._instance(_schema(kind), rich, depth=0) or {}
        specs = {each: self._replica(served, rich) for each in served.replica_types if self._random.random() < 0.7}
        if self._random.random() < 0.8:
            spec[served.replica_specs_field] = specs
            (spec.get("runPolicy") or {}).pop("managedBy", None)
        metadata = {"name": self._random.choice(("rt", "demo", "a" * 60)), "namespace": "team", "uid": "u"}
        return {"apiVersion": served.api_version, "kind": kind, "metadata": metadata, "spec": spec}

    def _replica(self, kind: JobKind, rich: float) -> JsonObject:
        schema = _schema(kind.kind)["properties"][kind.replica_specs_field]["additionalProperties"]
        made: JsonObject = self._instance(schema, rich, depth=2)
        pod = ((made.get("template") or {}).get("spec") or {}) if self._random.random() < 0.4 else {}
        pod["containers"] = [*(pod.get("containers") or []), {"name": kind.container_name, "image": "i"}]
        if self._random.random() < 0.8:
            made |= {"replicas": self._random.choice((1, 1, 2)), "restartPolicy": "Never"}
        return {**made, "template": {**(made.get("template") or {}), "spec": pod}}


WIDE = "wide"
"""A ClusterTrainingRuntime on which `largest_trainjob` takes longest to judge."""

_JOBS = 26
_VOLUMES = 128


def wide_runtime() -> JsonObject:
    """A runtime of many ReplicatedJobs."""
    jobs = []
    for number in range(_JOBS):
        pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "i"}]}}
        job: JsonObject = {"name": f"job-{number}", "template": {"spec": {"template": pods}}}
        if number == 0:
            job["template"]["metadata"] = {"labels": {STEP: "trainer"}}
        jobs.append(job)
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": WIDE},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


def largest_trainjob() -> JsonObject:
    """A TrainJob that is admitted, of nearly the three mebibytes that an API server takes."""
    patches = []
    for number in range(16):
        volumes = [{"name": f"v{number}-{index}", "emptyDir": {}} for index in range(_VOLUMES)]
        jobs = [
            {"name": f"job-{job}", "template": {"spec": {"template": {"spec": {"volumes": volumes}}}}}
            for job in range(_JOBS)
        ]
        spec = {"template": {"spec": {"replicatedJobs": jobs}}}
        patches.append({"manager": f"acme.io/m{number}", "trainingRuntimeSpec": spec})
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "largest", "namespace": "default"},
        "spec": {
            "runtimeRef": {"name": WIDE, "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
            "managedBy": "trainer.kubeflow.org/trainjob-controller",
            "runtimePatches": patches,
        },
    }


def review_of(obj: JsonObject, uid: str) -> bytes:
    """The review of an object that is created."""
    request = {"uid": uid, "operation": "CREATE", "object": obj}
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
