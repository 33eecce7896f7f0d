"""Match conditions: the last word on whether a webhook is asked about a request."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.admission.webhook.configuration import Webhook
from trainmaster.devcluster.apiserver.admission.webhook.review import described
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import AdmissionRequest
from trainmaster.devcluster.apiserver.schema.cel.condition import compile_condition
from trainmaster.devcluster.apiserver.schema.cel.program import CompilationFailed, EvaluationFailed
from trainmaster.runtime.jsontree import JsonObject


def holds(
    webhook: Webhook, request: AdmissionRequest, obj: JsonObject | None, old: JsonObject | None, *, kind: Kind
) -> bool:
    """Return whether all conditions of a webhook hold for a request whose objects are in the form of `kind`.

    One that does not hold decides. Otherwise one without a result refuses the request with 403, or skips the webhook,
    as the failure policy says.
    """
    variables = {"object": obj, "oldObject": old, "request": described(request, kind=kind)}
    failures: list[str] = []
    for expression in webhook.conditions:
        try:
            if compile_condition(expression).evaluate(variables) is False:
                return False
        except (CompilationFailed, EvaluationFailed) as error:
            failures.append(f"expression '{expression}' resulted in error: {error}")
    if failures and not webhook.ignores_failure:
        raise errors.forbidden(_joined(failures), resource=request.kind.resource, name=request.name)
    return not failures


def _joined(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
