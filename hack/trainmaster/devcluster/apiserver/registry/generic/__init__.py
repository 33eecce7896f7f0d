"""The verbs of the Kubernetes API, without HTTP: kube-apiserver's registry/generic and registry/rest.

`api` has the verbs, `writer` one attempt at a write, `create`, `update` and `delete` what happens to an object before.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.generic.api import Api
from trainmaster.devcluster.apiserver.registry.generic.patch import CUSTOM_PATCH_TYPES
from trainmaster.devcluster.apiserver.registry.generic.scope import AdmissionHook, Operation
from trainmaster.devcluster.apiserver.registry.generic.watch import Watch, WatchEvent
from trainmaster.devcluster.apiserver.registry.options import (
    DeleteOptions,
    FieldValidation,
    PatchType,
    Propagation,
    WriteOptions,
)

__all__ = [
    "CUSTOM_PATCH_TYPES",
    "AdmissionHook",
    "Api",
    "DeleteOptions",
    "FieldValidation",
    "Operation",
    "PatchType",
    "Propagation",
    "Watch",
    "WatchEvent",
    "WriteOptions",
]
