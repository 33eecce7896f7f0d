"""Jobs of Training Operator V1 (`kubeflow.org/v1`), of all kinds."""

from __future__ import annotations

from typing import Final

from trainmaster.runtime.conversion.building import build
from trainmaster.runtime.conversion.job import JobConversion
from trainmaster.runtime.conversion.kinds import JAXJob, PaddleJob, PyTorchJob, TFJob, XGBoostJob
from trainmaster.runtime.conversion.mpijob import MPIJob
from trainmaster.runtime.conversion.notes import Conversion
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jsontree import JsonObject

KINDS: Final[dict[str, type[JobConversion]]] = {
    each.kind: each for each in (PyTorchJob, TFJob, XGBoostJob, MPIJob, PaddleJob, JAXJob)
}


def convert_job(kind: JobKind, obj: JsonObject, *, gang_scheduler: str = "") -> Conversion:
    """Convert a job of one of `KINDS`.

    Args:
        obj: The job, of the shape that its definition demands; it is not changed.
        gang_scheduler: What Training Operator V1 runs with as `--gang-scheduler-name`; nothing: without gangs.

    Raises:
        ConversionError: It is no job that Training Operator V1 would run.
    """
    job = KINDS[kind.kind](kind, obj, gang_scheduler=gang_scheduler)
    objects = build(job)
    for path in job.left():
        job.notes.tell(path, f"left out: {kind.kind} has no such field")
    return Conversion(objects, job.notes.notes)
