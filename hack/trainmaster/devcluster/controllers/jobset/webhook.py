"""Admission of JobSets: what JobSet's two webhooks do, as a hook of the API."""

from __future__ import annotations

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry import Registry
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Operation
from trainmaster.devcluster.apiserver.resources import JOBSETS
from trainmaster.devcluster.controllers.jobset.defaults import apply_defaults
from trainmaster.devcluster.controllers.jobset.validation import validate_change, validate_new
from trainmaster.runtime.jsontree import JsonObject

_WEBHOOK = "vjobset.kb.io"


def admission_of(registry: Registry) -> AdmissionHook:
    """Return the hook; it needs the registry for the schema of the JobSets that are served at the time of a request."""

    def admit(operation: Operation, obj: JsonObject, old: JsonObject | None) -> JsonObject:
        apply_defaults(obj)
        schema = registry.get(JOBSETS).schema
        if "spec" not in obj or (schema is not None and schema.validate(obj)):
            return obj  # malformed: the API refuses it next, and says what is wrong better than the rules below could
        problems = validate_new(obj) if operation == "CREATE" or old is None else validate_change(obj, old)
        if problems:
            refusal = errors.invalid(JOBSETS.group, "JobSet", obj["metadata"].get("name", ""), problems)
            message = f'admission webhook "{_WEBHOOK}" denied the request: {refusal.message}'
            raise StatusError(refusal.code, refusal.reason, message, details=refusal.details)
        return obj

    return admit
