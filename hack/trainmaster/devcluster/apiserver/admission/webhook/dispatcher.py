"""The dispatcher of webhooks: the admission of writes by those that the webhook configurations name.

- Mutating webhooks are called one after the other, each sees what the ones before it did; with the reinvocation policy
  IfNeeded they are called once more when something was changed after them.
- Validating webhooks are called at the same time, with the object as it would be stored.
- A call that fails fails the request with 500, or is passed over, as the failure policy says. A webhook that denies a
  request decides, whatever the policy.
- The configurations themselves are exempt, so that a broken webhook can always be removed.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import orjson

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.admission.webhook.accessors import (
    Phase,
    WebhookInvocation,
    WebhookSource,
    convert,
)
from trainmaster.devcluster.apiserver.admission.webhook.client import CallFailed, ServiceResolver, WebhookClient
from trainmaster.devcluster.apiserver.admission.webhook.matcher import WebhookMatcher
from trainmaster.devcluster.apiserver.admission.webhook.review import (
    AdmissionResponse,
    InvalidResponse,
    create_review,
    rejection,
    verify_admission_response,
)
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.jsonpatch import PatchError, json_patch
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.registry.generic.admission_request import (
    AdmissionOperation,
    AdmissionRequest,
    Reshape,
)
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

_PHASES: tuple[Phase, ...] = ("mutating", "validating")


class WebhookDispatcher:
    """The admission webhooks of one cluster; an `Admission`. Closed by whoever made it."""

    def __init__(self, api: Api, services: ServiceResolver) -> None:
        self._source = WebhookSource(api.store, api.registry)
        self._client = WebhookClient(services)
        self._matcher = WebhookMatcher(api.store)

    async def close(self) -> None:
        """Stop following the configurations and close the connections."""
        self._source.close()
        await self._client.close()

    def handles(self, kind: Kind, operation: AdmissionOperation, subresource: str) -> bool:
        """Return whether the rules of any webhook match such requests."""
        return any(self._source.find(phase, kind, operation, subresource) for phase in _PHASES)

    async def mutate(self, request: AdmissionRequest, obj: JsonObject, *, reshape: Reshape) -> JsonObject:
        """Call the mutating webhooks."""
        invocations = self._invocations("mutating", request)
        called: list[WebhookInvocation] = []
        again: set[tuple[str, str]] = set()
        for invocation in invocations:
            if not self._matcher.matches(invocation, request, obj):
                continue
            obj, changed = await self._mutated(invocation, request, obj, reshape)
            if changed:
                again |= {each.webhook.id for each in called}
            if invocation.webhook.reinvocable:
                called.append(invocation)
        for invocation in called:
            if invocation.webhook.id in again and self._matcher.matches(invocation, request, obj):
                obj, _ = await self._mutated(invocation, request, obj, reshape)
        return obj

    async def validate(self, request: AdmissionRequest, obj: JsonObject | None) -> None:
        """Call the validating webhooks; for a deletion the mutating ones as well, which have nothing to mutate then."""
        if request.operation == "DELETE":
            for invocation in self._invocations("mutating", request):
                if self._matcher.matches(invocation, request, obj):
                    await self._refuse_patch(invocation, request)
        matching = [
            invocation
            for invocation in self._invocations("validating", request)
            if self._matcher.matches(invocation, request, obj)
        ]
        if len(matching) == 1:
            await self._validated(matching[0], request, obj)
            return
        refusals = await asyncio.gather(
            *(self._validated(invocation, request, obj) for invocation in matching), return_exceptions=True
        )
        for refusal in refusals:
            if refusal is not None:
                raise refusal

    def _invocations(self, phase: Phase, request: AdmissionRequest) -> tuple[WebhookInvocation, ...]:
        return self._source.find(phase, request.kind, request.operation, request.subresource)

    async def _mutated(
        self, invocation: WebhookInvocation, request: AdmissionRequest, obj: JsonObject, reshape: Reshape
    ) -> tuple[JsonObject, bool]:
        """Return the object after one webhook, and whether that made a difference."""
        kind = request.kind
        seen = convert(obj, given=kind, wanted=invocation.kind)
        response = await self._call("mutating", invocation, request, seen)
        operations = _operations(response)
        if not operations:
            return obj, False
        try:
            patched = json_patch(seen, operations)
        except PatchError as error:
            raise _internal(str(error)) from error
        shaped = reshape(convert(patched, given=invocation.kind, wanted=kind))
        return shaped, shaped != obj

    async def _refuse_patch(self, invocation: WebhookInvocation, request: AdmissionRequest) -> None:
        """Call a mutating webhook for a deletion."""
        response = await self._call("mutating", invocation, request, None)
        if _operations(response):
            name = errors.quote(invocation.webhook.name)
            text = "attempted to modify the object, which is not supported for this operation"
            raise _internal(f"admission webhook {name} {text}")

    async def _validated(
        self, invocation: WebhookInvocation, request: AdmissionRequest, obj: JsonObject | None
    ) -> None:
        seen = None if obj is None else convert(obj, given=request.kind, wanted=invocation.kind)
        await self._call("validating", invocation, request, seen)

    async def _call(
        self, phase: Phase, invocation: WebhookInvocation, request: AdmissionRequest, obj: JsonObject | None
    ) -> AdmissionResponse | None:
        """Return the response of a webhook; None if the call failed and the failure policy ignores that."""
        webhook = invocation.webhook
        if request.dry_run and not webhook.harmless_dry:
            raise errors.bad_request(f"admission webhook {errors.quote(webhook.name)} does not support dry run")
        uid = str(uuid.uuid4())
        old = None if request.old is None else convert(request.old, given=request.kind, wanted=invocation.kind)
        body = create_review(request, obj, old, kind=invocation.kind, uid=uid)
        try:
            response = verify_admission_response(await self._client.call(webhook, body), uid=uid, phase=phase)
            _check_patch(response)
        except (CallFailed, InvalidResponse) as error:
            if webhook.ignores_failure:
                return None
            raise _internal(f"failed calling webhook {errors.quote(webhook.name)}: {error}") from error
        request.warnings.extend(response.warnings)
        if not response.allowed:
            raise rejection(webhook.name, response.status, warnings=response.warnings)
        return response


def _check_patch(response: AdmissionResponse) -> None:
    """Check that a patch can be read; whether it fits the object shows later."""
    if not response.patch or not response.allowed:
        return
    try:
        operations: Any = load_json(response.patch)
    except JsonError as error:
        raise InvalidResponse(f"received undecodable patch in webhook response: {error}") from error
    if not isinstance(operations, list):
        raise InvalidResponse("received undecodable patch in webhook response: json: cannot unmarshal it into a list")
    if operations and response.patch_type != "JSONPatch":
        raise InvalidResponse(f"unsupported patch type {errors.quote(response.patch_type)}")


def _operations(response: AdmissionResponse | None) -> list[Any]:
    operations: list[Any] = orjson.loads(response.patch) if response is not None and response.patch else []
    return operations


def _internal(text: str) -> StatusError:
    """Return a failure of the server, with its cause in the details."""
    error = errors.internal(text)
    error.details = {"causes": [{"message": text}]}
    return error
