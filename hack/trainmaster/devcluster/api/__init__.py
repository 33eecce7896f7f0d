"""The Kubernetes API without HTTP: verbs, their options, and what follows from them."""

from __future__ import annotations

from trainmaster.devcluster.api.admission import Admission, AdmissionOperation, AdmissionRequest, Reshape
from trainmaster.devcluster.api.api import Api
from trainmaster.devcluster.api.options import DeleteOptions, FieldValidation, PatchType, Propagation, WriteOptions
from trainmaster.devcluster.api.preparing import AdmissionHook, Operation
from trainmaster.devcluster.api.seeding import SEED_NAMESPACES, seed
from trainmaster.devcluster.api.watching import Watch, WatchEvent

__all__ = [
    "SEED_NAMESPACES",
    "Admission",
    "AdmissionHook",
    "AdmissionOperation",
    "AdmissionRequest",
    "Api",
    "DeleteOptions",
    "FieldValidation",
    "Operation",
    "PatchType",
    "Propagation",
    "Reshape",
    "Watch",
    "WatchEvent",
    "WriteOptions",
    "seed",
]
