"""Who set which field of what a job of `kubeflow.org/v1` becomes: its own template of pods, or its kind."""

from __future__ import annotations

from trainmaster.runtime.jobs.constants import REPLICA_TYPE_LABEL
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.provenance.steps import Steps, carried, put, set_by


def job_steps(job: Job, obj: JsonObject) -> Steps:
    """Return the steps of an object that a job becomes: what a pod has of its template, and what the kind has set.

    What a gang scheduler has set counts as set by the kind.
    """
    step = f"kind {job.kind.kind}"
    replica_type = ((obj["metadata"].get("labels") or {}).get(REPLICA_TYPE_LABEL) or "").lower()
    named = next((each for each in job.replica_specs if each.lower() == replica_type), None)
    if obj["kind"] != "Pod" or named is None:
        return set_by(step, obj)
    replica = job.replica_specs[named]
    origin = f"{job.kind.kind} spec.{job.kind.replica_specs_field}.{named}"
    before = {field: replica.template[field] for field in ("metadata", "spec") if replica.template.get(field)}
    steps = carried(before, set_by(f"{origin}.template", before), obj, step)
    if obj["spec"].get("restartPolicy") == replica.restart_policy:
        put(steps, ("spec", "restartPolicy"), step, f"{origin}.restartPolicy")
    return steps
