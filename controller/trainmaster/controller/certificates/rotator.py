"""The rotator, which runs on the leader: performs one step after the other until there is nothing left to do.

Guarantees:
- H-11: an authority and a serving certificate of our own are kept in the Secret, our webhook configurations trust
  it, and while one authority follows another they trust both.
- Each write names the version that was looked at. Of two leaders one gets a conflict, and looks again.
- What webhook configurations trust is never taken back to an older state: they are looked at before the Secret is read,
  which is read from the server for each step.
- What is settled costs nothing: it is woken by changes, and looks again after twelve hours.
- It stops for nobody: a missing right, an absent Secret and a server that is away are told once, and tried again.
- The key of the authority is known to who leads while it looks, and told to nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, Never

import structlog
from cryptography import x509

from trainmaster.controller.certificates.ca_injector import CAInjector
from trainmaster.controller.certificates.pki import new_authority, new_serving_pair, to_pem
from trainmaster.controller.certificates.rotation import (
    LOOK_EVERY,
    DropAuthorities,
    NewAuthority,
    NewServingPair,
    Wait,
    next_step,
)
from trainmaster.controller.certificates.secret import SecretData, encode
from trainmaster.controller.certificates.server_time import ServerTime
from trainmaster.controller.certificates.watched import WatchedObjects, again
from trainmaster.controller.certificates.webhook_names import ConfigurationName
from trainmaster.controller.kube.cache.backoff import Backoff
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    NotLeading,
    from_response,
)
from trainmaster.controller.kube.rest.resources import SECRETS
from trainmaster.runtime.jsontext import load_json
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

FIELD_MANAGER: Final = "trainer-cert-rotator"

_NOT_READ_YET: Final = 5.0
"""Seconds between two looks whether everything was read; readers tell of their problems themselves."""

_STEPS_AT_MOST: Final = 12
"""One after the other without a pause; the longest way, from an empty Secret, has six."""


class CertRotator:
    """Keeps the Secret and the webhook configurations right.

    Args:
        names: The DNS names of the servers, the one that is needed first.
    """

    def __init__(
        self,
        client: KubeClient,
        watched: WatchedObjects,
        *,
        names: Sequence[str],
        time: ServerTime,
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client = client
        self._watched = watched
        self._names = names
        self._recorder = recorder
        self._clock = clock
        self._time = time
        self._injector = CAInjector(client, clock=clock)
        self._secret_name = f"{watched.namespace}/{watched.secret_name}"
        self._metadata: JsonObject = {}
        """That of the Secret, as it was read or written last."""

        self._told: dict[str, object] = {}
        """What was told last, by topic."""

        self._told_missing: set[ConfigurationName] = set()

    async def run(self) -> Never:
        """Rotate until cancelled."""
        changed = self._watched.subscribe()
        backoff = Backoff(clock=self._clock)
        while True:
            changed.clear()
            try:
                pause = await self._rotate()
                backoff.reset()
                self._is_new("error", None)
            except KubeError as error:
                pause = backoff.next_delay()
                self._tell_error(error)
            with suppress(TimeoutError):
                async with self._clock.timeout(pause):
                    await changed.wait()

    async def _rotate(self) -> float:
        """Do what is to be done; returns the seconds until the next look."""
        if not self._watched.is_read:
            return _NOT_READ_YET
        for _ in range(_STEPS_AT_MOST):
            ours = self._injector.ours(self._watched.configurations())
            unreadable = self._watched.unreadable()
            secret = await self._read()
            if secret is None:
                return LOOK_EVERY.total_seconds()
            data, now = SecretData.of(secret), self._time.now()
            self._tell_unreadable(unreadable)
            self._tell_missing()
            # Reading keys includes arithmetic that takes longer than anybody else should wait.
            step = await asyncio.to_thread(
                next_step,
                data,
                names=self._names,
                now=now,
                bundle_in_place=not unreadable and all(each.trusts(data.authorities) for each in ours),
                injected=[authority for each in ours for bundle in each.bundles() for authority in bundle],
            )
            if not isinstance(step, Wait):
                await self._perform(step, data)
                continue
            missing = [each for each in ours if not each.trusts(data.authorities)]
            # Without a certificate nothing at all would be served, not even what says why.
            otherwise_none = step.for_bundle is not None and data.serving_problem(self._names, now) is not None
            if not missing:
                if unreadable and otherwise_none:
                    await self._perform(NewServingPair("there would be none"), data)
                    continue
                return step.seconds
            try:
                pauses = [await self._injector.inject(each, data.authorities) for each in missing]
            except ApiError as error:
                if otherwise_none and isinstance(error, Forbidden | Invalid):
                    await self._perform(NewServingPair("there would be none"), data)
                raise
            if any(pauses):
                return min(step.seconds, *filter(None, pauses))
        return _NOT_READ_YET

    async def _read(self) -> JsonObject | None:
        """Return the Secret of this moment, and take the time of the server; None if there is none, which is told."""
        path = SECRETS.path(self._watched.namespace, self._watched.secret_name)
        status, headers, body = await self._client.raw("GET", path)
        if status >= 300 and status != 404:
            raise from_response(status, headers, body, request=f"GET {path}")
        self._time.observe(headers)
        read = load_json(body) if status != 404 else None
        secret: JsonObject | None = read if isinstance(read, dict) else None
        if self._is_new("absent", secret is None) and secret is None:
            log.warning(
                "there is no Secret for the certificates of the manager, and it may not create one",
                secret=self._secret_name,
                hint=self._watched.remedy,
            )
        if secret is not None:
            self._metadata = secret["metadata"]
        return secret

    def _is_new(self, topic: str, what: object) -> bool:
        """Take note of what is to be told of a topic; returns whether that differs from the last time."""
        before, self._told[topic] = self._told.get(topic), what
        return before != what

    def _tell_unreadable(self, unreadable: Mapping[ConfigurationName, str]) -> None:
        if self._is_new("unreadable", bool(unreadable)) and unreadable:
            log.warning(
                "webhook configurations are not ours to read",
                hint="they are not told whom to trust, and no authority is replaced; the role in deploy/rbac allows it",
                reasons={str(name): reason for name, reason in unreadable.items()},
            )

    def _tell_missing(self) -> None:
        missing = set(self._watched.missing())
        for each in missing - self._told_missing:
            log.warning(
                "a webhook configuration is missing: its webhooks are not called", name=str(each), hint=again(each)
            )
            self._event("Warning", "WebhookConfigurationMissing", f"the {each} does not exist: {again(each)}")
        for each in self._told_missing - missing:
            log.info("a webhook configuration is there again", name=str(each))
        self._told_missing = missing

    async def _perform(self, step: NewAuthority | NewServingPair | DropAuthorities, data: SecretData) -> None:
        """Write what one step makes of the Secret."""
        now = self._time.now()
        match step:
            case NewAuthority():
                _, made = await asyncio.to_thread(new_authority, now=now)
                bundle = made.certificate + to_pem(step.keep)
                after = SecretData(bundle, made.key, data.certificate, data.key)
                told = "a new certificate authority is made"
            case NewServingPair():
                made = await asyncio.to_thread(new_serving_pair, data.signer(), self._names, now=now)
                after = SecretData(to_pem(data.authorities), data.ca_key, made.certificate, made.key)
                told = "a new serving certificate is made"
            case DropAuthorities():
                after = SecretData(to_pem(step.keep), data.ca_key, data.certificate, data.key)
                told = "an old certificate authority is not trusted any more"
        written = await self._client.patch(
            SECRETS,
            self._watched.namespace,
            self._watched.secret_name,
            {"metadata": {"resourceVersion": self._metadata["resourceVersion"]}, "data": encode(after)},
            field_manager=FIELD_MANAGER,
        )
        self._metadata = written["metadata"]
        until = after.serving.not_valid_after_utc if after.serving is not None else None
        log.info(
            told,
            reason=step.reason,
            secret=self._secret_name,
            authorities=[_described(each) for each in after.authorities],
            serving_until=until.isoformat() if until else None,
        )
        reason = "CertificateRotated" if isinstance(step, NewServingPair) else "AuthorityRotated"
        self._event("Normal", reason, f"{told}: {step.reason}")

    def _event(self, type_: Literal["Normal", "Warning"], reason: str, note: str) -> None:
        secret = {"apiVersion": SECRETS.api_version, "kind": SECRETS.kind, "metadata": self._metadata}
        self._recorder.event(secret, type=type_, reason=reason, action="Rotating", note=note)

    def _tell_error(self, error: KubeError) -> None:
        if isinstance(error, NotLeading | Conflict | NotFound):
            # Another leader, or an editor, was first; what came of it is read next.
            log.debug("certificates are changed by somebody else", error=str(error))
        elif self._is_new("error", (type(error), getattr(error, "status", None))):
            log.warning(
                "certificates cannot be kept up to date; trying again",
                error=str(error),
                **({"hint": "the role in deploy/rbac grants what this needs"} if isinstance(error, Forbidden) else {}),
            )


def _described(authority: x509.Certificate) -> str:
    return f"{authority.serial_number:x} until {authority.not_valid_after_utc.isoformat()}"
