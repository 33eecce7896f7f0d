"""Storage objects in use: a new claim carries the finalizer by which it outlives its deletion until no pod uses it."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Operation
from trainmaster.devcluster.apiserver.registry.strategy import protect
from trainmaster.runtime.jsontree import JsonObject

PVC_PROTECTION_FINALIZER = "kubernetes.io/pvc-protection"


def claim_admission() -> AdmissionHook:
    """Return the hook for persistent volume claims."""

    def admit(operation: Operation, claim: JsonObject, _old: JsonObject | None) -> JsonObject:
        if operation == "CREATE":
            protect(claim, PVC_PROTECTION_FINALIZER)
        return claim

    return admit
