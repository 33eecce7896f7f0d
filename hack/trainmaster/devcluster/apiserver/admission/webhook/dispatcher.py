"""Webhooks at work: the admission of writes by those that the webhook configurations name.

- Mutating webhooks are asked one after the other, each sees what the ones before it did; those that ask for it are
  asked once more when something was changed after them.
- Validating webhooks are asked at the same time, about the object as it would be stored.
- A webhook that cannot be asked fails the request with 500, or is passed over, as its failure policy says. One that
  denies a request decides, whatever the policy.
- The configurations themselves are exempt, so that a broken webhook can always be removed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import orjson

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.admission.webhook.client import Caller, CallFailed
from trainmaster.devcluster.apiserver.admission.webhook.configuration import Phase, Webhook
from trainmaster.devcluster.apiserver.admission.webhook.match_conditions import holds
from trainmaster.devcluster.apiserver.admission.webhook.review import (
    InvalidAnswer,
    Verdict,
    denial,
    review_of,
    verdict_of,
)
from trainmaster.devcluster.apiserver.admission.webhook.services import ServiceResolver
from trainmaster.devcluster.apiserver.admission.webhook.table import Candidate, Table
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.patch import PatchError, json_patch
from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.generic import AdmissionOperation, AdmissionRequest, Api, Reshape
from trainmaster.devcluster.apiserver.resources import NAMESPACES
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_PHASES: tuple[Phase, ...] = ("mutating", "validating")


class Webhooks:
    """The admission webhooks of one cluster; an `Admission`. Closed by whoever made it."""

    def __init__(
        self, api: Api, services: ServiceResolver, *, new_uid: Callable[[], str] = lambda: str(uuid.uuid4())
    ) -> None:
        self._api = api
        self._table = Table(api.store, api.registry)
        self._caller = Caller(services)
        self._new_uid = new_uid

    async def close(self) -> None:
        """Stop following the configurations and close the connections."""
        self._table.close()
        await self._caller.close()

    def concerns(self, kind: Kind, operation: AdmissionOperation, subresource: str) -> bool:
        """Return whether the rules of any webhook name such requests."""
        return any(self._table.find(phase, kind, operation, subresource) for phase in _PHASES)

    async def mutate(self, request: AdmissionRequest, obj: JsonObject, *, reshape: Reshape) -> JsonObject:
        """Ask the mutating webhooks."""
        candidates = self._candidates("mutating", request)
        asked: list[Candidate] = []
        again: set[tuple[str, str]] = set()
        for candidate in candidates:
            if not self._selects(candidate, request, obj):
                continue
            obj, changed = await self._mutated(candidate, request, obj, reshape)
            if changed:
                again |= {each.webhook.id for each in asked}
            if candidate.webhook.reinvocable:
                asked.append(candidate)
        for candidate in asked:
            if candidate.webhook.id in again and self._selects(candidate, request, obj):
                obj, _ = await self._mutated(candidate, request, obj, reshape)
        return obj

    async def validate(self, request: AdmissionRequest, obj: JsonObject | None) -> None:
        """Ask the validating webhooks; for a deletion the mutating ones as well, which have nothing to mutate then."""
        if request.operation == "DELETE":
            for candidate in self._candidates("mutating", request):
                if self._selects(candidate, request, obj):
                    await self._refuse_patch(candidate, request)
        concerned = [
            candidate for candidate in self._candidates("validating", request) if self._selects(candidate, request, obj)
        ]
        if len(concerned) == 1:
            await self._validated(concerned[0], request, obj)
            return
        answers = await asyncio.gather(
            *(self._validated(candidate, request, obj) for candidate in concerned), return_exceptions=True
        )
        for answer in answers:
            if answer is not None:
                raise answer

    def _candidates(self, phase: Phase, request: AdmissionRequest) -> tuple[Candidate, ...]:
        return self._table.find(phase, request.kind, request.operation, request.subresource)

    def _selects(self, candidate: Candidate, request: AdmissionRequest, obj: JsonObject | None) -> bool:
        """Return whether the selectors and conditions of a webhook pick a request."""
        webhook, kind = candidate
        if not self._is_selected(webhook, request, obj):
            return False
        if not webhook.conditions:
            return True
        seen, old = (None if each is None else _as(kind, request.kind, each) for each in (obj, request.old))
        return holds(webhook, request, seen, old, kind=kind)

    def _is_selected(self, webhook: Webhook, request: AdmissionRequest, obj: JsonObject | None) -> bool:
        selector = webhook.object_selector
        if selector.requirements and not any(
            each is not None and selector.matches(each["metadata"].get("labels")) for each in (obj, request.old)
        ):
            return False
        selector = webhook.namespace_selector
        if not selector.requirements or not (request.namespace or request.kind.resource == NAMESPACES):
            return True  # objects outside of namespaces are never exempt
        if request.kind.resource == NAMESPACES and not request.subresource and obj is not None:
            return selector.matches(obj["metadata"].get("labels"))
        record = self._api.store.get(ObjectKey(NAMESPACES, "", request.namespace))
        if record is None:
            raise errors.not_found(NAMESPACES, request.namespace)
        return selector.matches(record.metadata.get("labels"))

    async def _mutated(
        self, candidate: Candidate, request: AdmissionRequest, obj: JsonObject, reshape: Reshape
    ) -> tuple[JsonObject, bool]:
        """Return the object after one webhook, and whether that made a difference."""
        kind = request.kind
        seen = _as(candidate.kind, kind, obj)
        verdict = await self._ask("mutating", candidate, request, seen)
        operations = _operations(verdict)
        if not operations:
            return obj, False
        try:
            patched = json_patch(seen, operations)
        except PatchError as error:
            raise _internal(str(error)) from error
        shaped = reshape(_as(kind, candidate.kind, patched))
        return shaped, shaped != obj

    async def _refuse_patch(self, candidate: Candidate, request: AdmissionRequest) -> None:
        """Ask a mutating webhook about a deletion."""
        verdict = await self._ask("mutating", candidate, request, None)
        if _operations(verdict):
            name = errors.quote(candidate.webhook.name)
            text = "attempted to modify the object, which is not supported for this operation"
            raise _internal(f"admission webhook {name} {text}")

    async def _validated(self, candidate: Candidate, request: AdmissionRequest, obj: JsonObject | None) -> None:
        seen = None if obj is None else _as(candidate.kind, request.kind, obj)
        await self._ask("validating", candidate, request, seen)

    async def _ask(
        self, phase: Phase, candidate: Candidate, request: AdmissionRequest, obj: JsonObject | None
    ) -> Verdict | None:
        """Return what a webhook says to a request; None if it cannot be asked and that is no obstacle."""
        webhook = candidate.webhook
        if request.dry_run and not webhook.harmless_dry:
            raise errors.bad_request(f"admission webhook {errors.quote(webhook.name)} does not support dry run")
        uid = self._new_uid()
        old = None if request.old is None else _as(candidate.kind, request.kind, request.old)
        body = review_of(request, obj, old, kind=candidate.kind, uid=uid)
        try:
            verdict = verdict_of(await self._caller.call(webhook, body), uid=uid, phase=phase)
            _check_patch(verdict)
        except (CallFailed, InvalidAnswer) as error:
            if webhook.ignores_failure:
                return None
            raise _internal(f"failed calling webhook {errors.quote(webhook.name)}: {error}") from error
        request.warnings.extend(verdict.warnings)
        if not verdict.allowed:
            raise denial(webhook.name, verdict.status, warnings=verdict.warnings)
        return verdict


def _check_patch(verdict: Verdict) -> None:
    """Check that a patch can be read; whether it fits the object shows later."""
    if not verdict.patch or not verdict.allowed:
        return
    try:
        operations: Any = orjson.loads(verdict.patch)
    except orjson.JSONDecodeError as error:
        raise InvalidAnswer(f"received undecodable patch in webhook response: {error}") from error
    if not isinstance(operations, list):
        raise InvalidAnswer("received undecodable patch in webhook response: json: cannot unmarshal it into a list")
    if operations and verdict.patch_type != "JSONPatch":
        raise InvalidAnswer(f"unsupported patch type {errors.quote(verdict.patch_type)}")


def _operations(verdict: Verdict | None) -> list[Any]:
    operations: list[Any] = orjson.loads(verdict.patch) if verdict is not None and verdict.patch else []
    return operations


def _as(wanted: Kind, given: Kind, obj: JsonObject) -> JsonObject:
    """Return an object in the form of another kind under which it is served."""
    if wanted is given:
        return obj
    stored = given.strategy.to_storage(copy_tree(obj))
    return {**wanted.strategy.from_storage(stored), "apiVersion": wanted.api_version, "kind": wanted.kind}


def _internal(text: str) -> StatusError:
    """Return a failure of the server, with its cause in the details."""
    error = errors.internal(text)
    error.details = {"causes": [{"message": text}]}
    return error
