"""Has our webhook configurations trust our authorities: the writes, each at most once for each change.

Guarantees:
- What is not ours is not written, and told once (`webhook_configuration` knows whose they are).
- What somebody else makes of a bundle is put right at once. Who does it again and again is told of, once, and the
  pauses between our writes double up to `LONGEST_PAUSE`: two who disagree do not keep an API server busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from cryptography import x509

from trainmaster.controller.certificates.webhook_configuration import FIELD_MANAGER, WebhookConfiguration
from trainmaster.controller.certificates.webhook_names import ConfigurationName
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

LONGEST_PAUSE: Final = 300.0
QUIET: Final = 3600.0
"""Seconds without an edit after which one is new."""

_JSON_PATCH: Final = "application/json-patch+json"


@dataclass(slots=True)
class _Written:
    """What we made of one configuration."""

    authorities: frozenset[x509.Certificate]
    before: str
    """The version that we changed: until another one is seen, ours is the newest."""

    content: JsonObject
    moment: float
    edits: int = 0
    """How often somebody else has changed the bundle since it was quiet for long."""


class CAInjector:
    """Writes bundles.

    Args:
        client: Where to.
        clock: The time.
    """

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._written: dict[ConfigurationName, _Written] = {}
        self._told: dict[ConfigurationName, str] = {}

    def ours(self, configurations: Sequence[WebhookConfiguration]) -> list[WebhookConfiguration]:
        """Return those that are for us to write, as they are by now."""
        found = []
        for seen in configurations:
            annotation = seen.cainjector()
            if (problem := seen.problem()) is not None:
                self._tell(seen.name, problem)
            elif annotation is not None:
                self._tell(
                    seen.name,
                    f"{seen.name} has the annotation {annotation}: its bundle is left to "
                    "cert-manager; set certManagement.enable to false, or remove the annotation",
                )
            else:
                self._told.pop(seen.name, None)
                written = self._written.get(seen.name)
                is_newest = written is not None and written.before == seen.version
                found.append(
                    WebhookConfiguration(seen.name, written.content, seen.service) if is_newest and written else seen
                )
        return found

    async def inject(self, configuration: WebhookConfiguration, authorities: Sequence[x509.Certificate]) -> float:
        """Have a configuration trust these authorities; returns 0 when it does, else the seconds to wait before.

        Raises:
            KubeError: It was not written.
        """
        key = configuration.name
        resource, name = key.resource, key.name
        now = self._clock.monotonic()
        written, wanted = self._written.get(key), frozenset(authorities)
        edits = 0
        if written is not None and written.authorities == wanted and now - written.moment < QUIET:
            edits = written.edits + 1
            pause = min(LONGEST_PAUSE, 2.0 ** (edits - 1)) if edits > 1 else 0.0
            left = written.moment + pause - now
            if left > 0:
                return left
            if edits <= 2:
                log.warning(
                    "somebody has changed the bundle of a webhook configuration; it is put right"
                    if edits == 1
                    else "somebody keeps changing the bundle of a webhook configuration; it is put right, more seldom",
                    kind=resource.kind,
                    name=name,
                    by=configuration.editors(),
                    hint="exclude caBundle from what they manage, or set certManagement.enable to false",
                )
        content = await self._client.patch(
            resource,
            None,
            name,
            configuration.patch(authorities),
            content_type=_JSON_PATCH,
            field_manager=FIELD_MANAGER,
        )
        self._written[key] = _Written(wanted, configuration.version, content, now, edits)
        log.info(
            "a webhook configuration trusts our authorities", kind=resource.kind, name=name, count=len(authorities)
        )
        return 0.0

    def _tell(self, name: ConfigurationName, problem: str) -> None:
        if self._told.get(name) != problem:
            self._told[name] = problem
            log.warning("the bundle of a webhook configuration is not ours to write", reason=problem)
