"""The matcher of webhooks: which of those whose rules match a request are called for it.

The selectors of a webhook are looked at first, its match conditions last. Objects outside of namespaces are never
exempt by a namespace selector.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.admission.webhook.accessors import WebhookAccessor, WebhookInvocation, convert
from trainmaster.devcluster.apiserver.admission.webhook.review import request_object
from trainmaster.devcluster.apiserver.registry.generic.admission_request import AdmissionRequest
from trainmaster.devcluster.apiserver.resources import NAMESPACES
from trainmaster.devcluster.apiserver.schema.cel.compiler import compile_condition
from trainmaster.devcluster.apiserver.schema.cel.program import CompilationFailed, EvaluationFailed
from trainmaster.devcluster.apiserver.storage import ObjectKey, Store
from trainmaster.runtime.jsontree import JsonObject


class WebhookMatcher:
    """Matches requests with the selectors and conditions of webhooks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def matches(self, invocation: WebhookInvocation, request: AdmissionRequest, obj: JsonObject | None) -> bool:
        """Return whether a webhook is to be called; raises the refusal of a match condition without a result."""
        webhook = invocation.webhook
        return (
            _object_selector_matches(webhook, request, obj)
            and self._namespace_selector_matches(webhook, request, obj)
            and (not webhook.conditions or _conditions_match(invocation, request, obj))
        )

    def _namespace_selector_matches(
        self, webhook: WebhookAccessor, request: AdmissionRequest, obj: JsonObject | None
    ) -> bool:
        selector = webhook.namespace_selector
        if not selector.requirements or not (request.namespace or request.kind.resource == NAMESPACES):
            return True
        if request.kind.resource == NAMESPACES and not request.subresource and obj is not None:
            return selector.matches(obj["metadata"].get("labels"))
        record = self._store.get(ObjectKey(NAMESPACES, "", request.namespace))
        if record is None:
            raise errors.not_found(NAMESPACES, request.namespace)
        return selector.matches(record.metadata.get("labels"))


def _object_selector_matches(webhook: WebhookAccessor, request: AdmissionRequest, obj: JsonObject | None) -> bool:
    selector = webhook.object_selector
    return not selector.requirements or any(
        each is not None and selector.matches(each["metadata"].get("labels")) for each in (obj, request.old)
    )


def _conditions_match(invocation: WebhookInvocation, request: AdmissionRequest, obj: JsonObject | None) -> bool:
    """Return whether all match conditions of a webhook hold.

    One that does not hold decides. Otherwise one without a result refuses the request with 403, or skips the webhook,
    as the failure policy says.
    """
    webhook, kind = invocation
    seen, old = (
        None if each is None else convert(each, given=request.kind, wanted=kind) for each in (obj, request.old)
    )
    variables = {"object": seen, "oldObject": old, "request": request_object(request, kind=kind)}
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
