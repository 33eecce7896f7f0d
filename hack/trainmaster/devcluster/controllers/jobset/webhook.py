"""What JobSet's two admission webhooks do, as a hook of the API: defaults, then validation.

Defaults come before validation (a rule needs a name, and gets one here), so nothing can be taken for granted about the
shape of the object: what is not an object or a list where one belongs is left for validation to refuse.
"""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry import Registry
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Operation
from trainmaster.devcluster.apiserver.resources import JOBSETS
from trainmaster.devcluster.controllers.jobset.webhook_validation import validate_create, validate_update
from trainmaster.runtime.jsontree import JsonObject

_WEBHOOK = "vjobset.kb.io"


def jobset_webhook(registry: Registry) -> AdmissionHook:
    """Return the hook; it needs the registry for the schema of the JobSets that are served at the time of a request."""

    def admit(operation: Operation, obj: JsonObject, old: JsonObject | None) -> JsonObject:
        set_defaults(obj)
        schema = registry.get(JOBSETS).schema
        if "spec" not in obj or (schema is not None and schema.validate(obj)):
            return obj  # malformed: the API refuses it next, and says what is wrong better than the rules below could
        problems = validate_create(obj) if operation == "CREATE" or old is None else validate_update(obj, old)
        if problems:
            refusal = errors.invalid(JOBSETS.group, "JobSet", obj["metadata"].get("name", ""), problems)
            message = f'admission webhook "{_WEBHOOK}" denied the request: {refusal.message}'
            raise StatusError(refusal.code, refusal.reason, message, details=refusal.details)
        return obj

    return admit


def set_defaults(jobset: JsonObject) -> None:
    """Fill in, in place, what the author of a JobSet left open, beyond the defaults of the schema."""
    spec = jobset.get("spec")
    if not isinstance(spec, dict):
        return
    _object_at(spec, "successPolicy").setdefault("operator", "All")
    _object_at(spec, "startupPolicy").setdefault("startupPolicyOrder", "AnyOrder")
    network = _object_at(spec, "network")
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for replicated_job in _objects(spec.get("replicatedJobs")):
        if "template" in replicated_job:
            job = _object_at(_object_at(replicated_job, "template"), "spec")
            job.setdefault("completionMode", "Indexed")
            pod = _object_at(_object_at(job, "template"), "spec")
            pod["restartPolicy"] = pod.get("restartPolicy") or "OnFailure"
    if "failurePolicy" in spec:
        for number, rule in enumerate(_objects(_object_at(spec, "failurePolicy").get("rules"))):
            rule["name"] = rule.get("name") or f"failurePolicyRule{number}"


def _object_at(holder: JsonObject, field: str) -> JsonObject:
    """Return the object in a field, a new one if the field is absent; something else in its place is not touched."""
    value = holder.setdefault(field, {})
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
