"""Reading a V1 job: by the rules of its kind, as Trainmaster runs it."""

from __future__ import annotations

import re
from typing import Final

from trainmaster.runtime.api.decoding import ApiTypeError
from trainmaster.runtime.conversion.notes import ConversionError
from trainmaster.runtime.conversion.replicas import check_size
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.validation import validate_job
from trainmaster.runtime.jsontree import JsonObject

_GENERATED: Final = "xxxxx"
"""In place of what the API server adds to `generateName`."""

_TYPE: Final = re.compile(r"\[([A-Za-z]\w*)\]")
"""A type of replicas in the path of a field, as V1 writes it."""


def read_job(kind: JobKind, obj: JsonObject) -> Job:
    """Read a job, defaulted; one whose name is generated gets one.

    Raises:
        ConversionError: It is no job that Training Operator V1 would run.
    """
    metadata = obj.get("metadata")
    if isinstance(metadata, dict) and not metadata.get("name") and isinstance(metadata.get("generateName"), str):
        obj = {**obj, "metadata": {**metadata, "name": f"{metadata['generateName']}{_GENERATED}"}}
    try:
        job = parse_job(kind, obj)
    except ApiTypeError as error:
        first, *others = [(path, problem) for path, _, problem in (each.partition(": ") for each in error.problems)]
        raise ConversionError(*first, *others) from error
    check_size(job)  # what follows looks at each pod
    errors = [(_TYPE.sub(r".\1", each.path), each.body) for each in validate_job(kind, obj, None).errors]
    if errors:
        first, *others = errors
        raise ConversionError(*first, *others)
    return job
