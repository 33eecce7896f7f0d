"""The rotator, which runs on the leader: performs one step after the other until there is nothing left to do.

Guarantees:
- H-11: an authority and a serving certificate of our own are kept in the Secret, our webhook configurations trust
  it, and while one authority follows another they trust both.
- Each write names the version that was looked at. Of two leaders one gets a conflict, and looks again.
- What webhook configurations trust is never taken back to an older state: they are looked at before the Secret is read.
- What is settled costs no request: it is woken by changes, and twelve hours later looks at the time alone.
- It stops for nobody: a missing right, an absent Secret and a server that is away are told once, and tried again.
- The key of the authority is known to who leads, and told to nobody.
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
from trainmaster.controller.certificates.webhook_configuration import WebhookConfiguration
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
        client: Writes as the leader.
        watched: What there is.
        names: The DNS names of the servers, the one that is needed first.
        time: The time that counts for certificates.
        recorder: Where events about the Secret go.
        clock: The time of this machine.
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
        self._seen_version: str | None = None
        self._secret: JsonObject | None = None
        """As it was read at that version, or as we have written it since."""

        self._told: object = None
        self._told_absent = False
        self._told_unreadable = False
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
                self._told = None
            except KubeError as error:
                pause = backoff.next_delay()
                self._tell(error)
            await self._sleep(pause, changed)

    async def _rotate(self) -> float:
        """Do what is to be done; returns the seconds until the next look."""
        if not self._watched.is_read:
            return _NOT_READ_YET
        for _ in range(_STEPS_AT_MOST):
            if not await self._read():
                self._tell_absent()
                return LOOK_EVERY.total_seconds()
            self._told_absent = False
            data = SecretData.of(self._secret or {})
            now = self._time.now()
            ours = self._injector.ours(self._watched.configurations())
            unreadable = self._watched.unreadable()
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
            # Whoever has written these configurations last knew a version of the Secret that may be later than ours.
            if not await self._read_again():
                continue
            try:
                paused = await self._inject(missing, data)
            except ApiError as error:
                if otherwise_none and isinstance(error, Forbidden | Invalid):
                    await self._perform(NewServingPair("there would be none"), data)
                raise
            if paused:
                return min(paused, step.seconds)
        return _NOT_READ_YET

    async def _read(self) -> bool:
        """Have the Secret of this moment, with the time of the server; False if there is none."""
        version = self._watched.secret_version()
        if version is None:
            self._secret = self._seen_version = None
            return False
        known = _version(self._secret) if self._secret is not None else None
        if version not in (known, self._seen_version):
            await self._read_again()
        self._seen_version = version
        return self._secret is not None

    async def _read_again(self) -> bool:
        """Read the Secret from the server; returns whether it is as we knew it."""
        path = SECRETS.path(self._watched.namespace, self._watched.secret_name)
        status, headers, body = await self._client.raw("GET", path)
        if status >= 300:
            raise from_response(status, headers, body, request=f"GET {path}")
        self._time.observe(headers)
        before, secret = self._secret, load_json(body)
        self._secret = secret if isinstance(secret, dict) else None
        return before is not None and self._secret is not None and _version(before) == _version(self._secret)

    def _tell_unreadable(self, unreadable: Mapping[ConfigurationName, str]) -> None:
        if unreadable and not self._told_unreadable:
            log.warning(
                "webhook configurations are not ours to read",
                hint="they are not told whom to trust, and no authority is replaced; the role in deploy/rbac allows it",
                reasons={str(name): reason for name, reason in unreadable.items()},
            )
        self._told_unreadable = bool(unreadable)

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

    def _tell_absent(self) -> None:
        if not self._told_absent:
            log.warning(
                "there is no Secret for the certificates of the manager, and it may not create one",
                secret=f"{self._watched.namespace}/{self._watched.secret_name}",
                hint=self._watched.remedy,
            )
        self._told_absent = True

    async def _inject(self, configurations: Sequence[WebhookConfiguration], data: SecretData) -> float:
        """Have configurations trust what the Secret holds; returns the seconds after which to go on."""
        pauses = [await self._injector.inject(each, data.authorities) for each in configurations]
        return min((pause for pause in pauses if pause), default=0.0)

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
        await self._write(after)
        until = after.serving.not_valid_after_utc if after.serving is not None else None
        log.info(
            told,
            reason=step.reason,
            secret=f"{self._watched.namespace}/{self._watched.secret_name}",
            authorities=[_described(each) for each in after.authorities],
            serving_until=until.isoformat() if until else None,
        )
        self._record(step, told)

    async def _write(self, data: SecretData) -> None:
        metadata = {"resourceVersion": (self._secret or {})["metadata"]["resourceVersion"]}
        self._secret = await self._client.patch(
            SECRETS,
            self._watched.namespace,
            self._watched.secret_name,
            {"metadata": metadata, "data": encode(data)},
            field_manager=FIELD_MANAGER,
        )

    def _record(self, step: NewAuthority | NewServingPair | DropAuthorities, told: str) -> None:
        reason = "CertificateRotated" if isinstance(step, NewServingPair) else "AuthorityRotated"
        self._event("Normal", reason, f"{told}: {step.reason}")

    def _event(self, type_: Literal["Normal", "Warning"], reason: str, note: str) -> None:
        metadata = (self._secret or {}).get("metadata") or {}
        secret = {"apiVersion": SECRETS.api_version, "kind": SECRETS.kind, "metadata": metadata}
        self._recorder.event(secret, type=type_, reason=reason, action="Rotating", note=note)

    def _tell(self, error: KubeError) -> None:
        if isinstance(error, NotLeading):
            log.debug("certificates are for another leader", error=str(error))
            return
        if isinstance(error, Conflict | NotFound):
            # Another leader, or an editor, was first; what came of it is on its way to us.
            self._seen_version = self._secret = None
            log.debug("certificates have changed meanwhile", error=str(error))
            return
        told = type(error), getattr(error, "status", None)
        if self._told != told:
            self._told = told
            log.warning(
                "certificates cannot be kept up to date; trying again",
                error=str(error),
                **({"hint": "the role in deploy/rbac grants what this needs"} if isinstance(error, Forbidden) else {}),
            )

    async def _sleep(self, seconds: float, changed: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                await changed.wait()


def _version(secret: JsonObject) -> str:
    version: str = secret["metadata"]["resourceVersion"]
    return version


def _described(authority: x509.Certificate) -> str:
    return f"{authority.serial_number:x} until {authority.not_valid_after_utc.isoformat()}"
