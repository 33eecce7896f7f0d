"""Jobs of `kubeflow.org/v1` for tests of their kinds: small ones, and what their pods are given."""

from collections.abc import Mapping
from typing import Any

from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job, JobKind
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jsontree import JsonObject


def replica(kind: JobKind, replicas: int | None = None, policy: str | None = None, **container: Any) -> JsonObject:
    """The replicas of one type, with one container of the kind's name."""
    spec: JsonObject = {"containers": [{"name": kind.container_name, "image": "train:1", **container}]}
    given = {"replicas": replicas, "restartPolicy": policy}
    return {"template": {"spec": spec}, **{name: value for name, value in given.items() if value is not None}}


def job_object(
    kind: JobKind, replicas: Mapping[str, Any], *, name: str = "demo", namespace: str = "team", **spec: Any
) -> JsonObject:
    """A job as its author writes it: its replicas by type, as numbers or as `replica` makes them."""
    specs = {each: given if isinstance(given, dict) else replica(kind, given) for each, given in replicas.items()}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": namespace, "uid": "1b2c"},
        "spec": {kind.replica_specs_field: specs, **spec},
    }


def job(kind: JobKind, replicas: Mapping[str, Any], **rest: Any) -> Job:
    """The same, read and defaulted."""
    return parse_job(kind, job_object(kind, replicas, **rest))


def environment(job: Job, replica_type: str, index: int, *, container: int = 0) -> dict[str, Any]:
    """The environment of one container, in its order; what is no literal is the field that it comes from."""
    env = build_pod(job, replica_type, index)["spec"]["containers"][container].get("env") or []
    return {
        each["name"]: each["value"] if "value" in each else each["valueFrom"]["fieldRef"]["fieldPath"] for each in env
    }


def problems(job: Job, old: Job | None = None) -> list[str]:
    """What the kind has to say against a job."""
    return [str(each) for each in job.kind.validate(job, old) if isinstance(each, FieldError)]


def warnings(job: Job) -> list[str]:
    """What the kind warns of."""
    return [str(each) for each in job.kind.validate(job, None) if isinstance(each, FieldWarning)]


def outcome(job: Job, pods: Mapping[str, list[JsonObject]] | None = None, **counts: tuple[int, ...]) -> list[str]:
    """What the state of replicas (active, succeeded, failed; by type) means: types and messages of conditions."""
    replicas = {each: ReplicaStatus(*counts.get(each, ())) for each in job.replica_specs}
    by_type = {each: (pods or {}).get(each, []) for each in job.replica_specs}
    return [_shown(each) for each in job.kind.update_job_status(job, replicas, by_type)]


def _shown(update: ConditionUpdate) -> str:
    return f"{update.type}: {update.message}"
