"""Generated jobs of Training Operator V1."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st
from support.conversions import JOB_KINDS

from trainmaster.runtime.jsontree import JsonObject, copy_tree


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
