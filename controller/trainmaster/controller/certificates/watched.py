"""What every replica watches of certificates: one Secret and our webhook configurations, each by its name.

Guarantees:
- Nothing else of these kinds is read, so that rights on these names are enough.
- The key of the authority is not kept: only who is about to sign reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from trainmaster.controller.certificates.ca_injector import ServiceReference, WebhookConfiguration
from trainmaster.controller.certificates.secret import CA_KEY, SecretData
from trainmaster.controller.certificates.webhook_names import ConfigurationName
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer, InformerOptions
from trainmaster.controller.kube.cache.listwatch import ListWatcher
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.resources import SECRETS
from trainmaster.runtime.jsontree import JsonObject

_KEPT: Final = ("name", "namespace", "uid", "resourceVersion")


class WatchedObjects:
    """Keeps them current.

    Args:
        service: The Service of the manager; the Secret is in its namespace.
    """

    def __init__(
        self,
        client: ListWatcher,
        *,
        service: ServiceReference,
        secret_name: str,
        configurations: Sequence[ConfigurationName],
        clock: Clock,
    ) -> None:
        self.service = service
        self.namespace, self.secret_name = service.namespace, secret_name
        self._secrets = Informer(
            client,
            SECRETS,
            InformerOptions(
                namespaces=[self.namespace],
                field_selector=f"metadata.name={secret_name}",
                transform=_without_authority_key,
                name=f"{SECRETS.name}[{secret_name}]",  # plugins may watch others
            ),
            clock=clock,
        )
        self._configurations = {
            each: Informer(
                client,
                each.resource,
                InformerOptions(
                    field_selector=f"metadata.name={each.name}",
                    optional=True,  # a server that is away is waited for; one that refuses is not
                    transform=lambda whole: whole,
                    name=f"{each.resource.name}[{each.name}]",
                ),
                clock=clock,
            )
            for each in configurations
        }
        self._subscribers: list[asyncio.Event] = []
        self._read: tuple[str | None, SecretData | None] | None = None
        self._seen: set[ConfigurationName] = set()
        """The webhook configurations that have existed."""

        for name, informer in self._configurations.items():
            informer.add_event_handler(partial(self._note, name))
        self._secrets.add_event_handler(lambda _: self._notify())

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in (self._secrets, *self._configurations.values()):
                tasks.create_task(informer.run(), name=f"watch {informer.resource.name}")
                tasks.create_task(self._notify_when_synced(informer))

    def subscribe(self) -> asyncio.Event:
        """Return an event that is set at each change; who waits for it clears it."""
        changed = asyncio.Event()
        changed.set()
        self._subscribers.append(changed)
        return changed

    @property
    def is_read(self) -> bool:
        """Whether everything was read, but for webhook configurations that we are not let see."""
        return self._secrets.has_synced and all(each.is_ready for each in self._configurations.values())

    def secret_data(self) -> SecretData | None:
        """Return what is in the Secret but the key of the authority; None if there is none, or none was read yet.

        It is the same until the Secret changes: probes ask all the time, and keys take long to check.
        """
        key = f"{self.namespace}/{self.secret_name}"
        version = self._secrets.store.version(key)
        if self._read is None or self._read[0] != version:
            secret = self._secrets.store.get(key)
            self._read = version, None if secret is None else SecretData.of(secret)
        return self._read[1]

    def secret_problem(self) -> str | None:
        """Say why there is nothing to serve, as far as that is the fault of the Secret."""
        name = f"the Secret {self.namespace}/{self.secret_name}"
        if self._secrets.failure is not None:
            return f"{name} cannot be read: {self._secrets.failure}"
        if not self._secrets.has_synced:
            return f"{name} is not read yet"
        data = self.secret_data()
        if data is None:
            return f"{name} does not exist; {self.remedy}"
        problem = data.pair_problem
        return f"{name}: {problem}; whoever leads fills it in" if problem else None

    @property
    def remedy(self) -> str:
        """What to do if there is no Secret."""
        return f"kubectl create secret generic {self.secret_name} -n {self.namespace}; it is filled in by itself"

    def configurations(self) -> list[WebhookConfiguration]:
        """Return the webhook configurations that there are."""
        found = []
        for name, informer in self._configurations.items():
            content = informer.store.get(name.name)
            if content is not None:
                found.append(WebhookConfiguration(name, content, self.service))
        return found

    def configuration_problem(self) -> str | None:
        """Say which webhook configuration has to be there and cannot be read, or is not there as none else is."""
        has_any = bool(self.configurations())
        for each, informer in self._configurations.items():
            if each.optional:
                continue
            name = f"the {each}"
            if informer.failure is not None and not informer.has_synced:
                return f"{name} cannot be read: {informer.failure}"
            if not informer.has_synced:
                return f"{name} is not read yet"
            if each.name not in informer.store and not has_any:
                return f"{name} does not exist: {again(each)}"
        return None

    def missing(self) -> list[ConfigurationName]:
        """Return the webhook configurations that should exist and do not; one that is optional has existed before."""
        return [
            each
            for each, informer in self._configurations.items()
            if informer.has_synced and each.name not in informer.store and (not each.optional or each in self._seen)
        ]

    def unreadable(self) -> dict[ConfigurationName, str]:
        """Return the webhook configurations that we are not let see, and why."""
        return {name: each.failure or "" for name, each in self._configurations.items() if not each.has_synced}

    def _note(self, name: ConfigurationName, change: Delta) -> None:
        if not change.is_deletion:
            self._seen.add(name)
        self._notify()

    def _notify(self) -> None:
        for changed in self._subscribers:
            changed.set()

    async def _notify_when_synced(self, informer: Informer) -> None:
        await informer.wait_synced()  # of an empty collection there is no event
        self._notify()


def again(name: ConfigurationName) -> str:
    """Return what to do about a webhook configuration that does not exist."""
    return f"apply the manifests of this installation again, or set {name.switch} to false"


def _without_authority_key(secret: JsonObject) -> JsonObject:
    """Keep what servers need: annotations may repeat all of it."""
    data = secret.get("data")
    secret["data"] = {key: value for key, value in data.items() if key != CA_KEY} if isinstance(data, dict) else {}
    metadata = secret["metadata"]
    secret["metadata"] = {key: metadata[key] for key in _KEPT if key in metadata}
    return secret
