"""Whether another operator is in charge of the jobs of `kubeflow.org/v1`: the Go one has no lease that would tell.

Guarantees:
- While the validating webhooks of these jobs lead to another Service, no job is touched: who admits jobs serves them.
  Both at once would undo what the other one writes.
- An operator without webhooks cannot be seen, and where we have no right to look nothing can: then jobs are served.
- Any other failure tells nothing: jobs are left alone until the next look.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import structlog

from trainmaster.controller.kube.rest.errors import Forbidden, KubeError
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

WEBHOOKS: Final = "validator.training-operator.kubeflow.org"
"""The name that the Training Operator's webhook configuration has, and ours for these jobs too."""

_CONFIGURATIONS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)

POLICY_RULES: Final = (
    PolicyRule(
        resource=_CONFIGURATIONS,
        verbs=("list",),
        needed_by="jobs",
        reason="leave the jobs of kubeflow.org/v1 to another operator while their webhooks lead to that",
        names=(WEBHOOKS,),
        optional=True,
    ),
)


class ConfigurationReader(Protocol):
    """What looking needs of a client."""

    async def list(
        self, resource: Resource, namespace: str | None, *, field_selector: str | None, limit: int | None
    ) -> JsonObject:
        """Read a collection; raises errors of the client."""


class OtherOperator:
    """Looks for another operator.

    Args:
        client: Reads webhook configurations.
        service: Name and namespace of our own Service.
    """

    def __init__(self, client: ConfigurationReader, *, service: tuple[str, str]) -> None:
        self._client = client
        self._service = service
        self._told: str | None = None

    async def is_in_charge(self) -> bool | None:
        """Return whether another operator admits jobs, and log it the first time; None if that cannot be told."""
        try:
            found = await self._client.list(_CONFIGURATIONS, None, field_selector=f"metadata.name={WEBHOOKS}", limit=1)
        except Forbidden as error:
            log.debug("no right to look for another operator", error=str(error))
            return False
        except KubeError as error:
            log.warning("cannot look for another operator; no job of kubeflow.org/v1 is served yet", error=str(error))
            return None
        other = next(self._others(found), None)
        if other is not None and other != self._told:
            log.warning(
                "the jobs of kubeflow.org/v1 are another operator's: their webhooks lead to it; they are left alone",
                webhooks=WEBHOOKS,
                service=other,
                hint="to replace it, end it and apply our webhook configuration, or delete that one; to leave these "
                "jobs to it for good, set trainingOperator.enabled to false",
            )
        self._told = other
        return other is not None

    def _others(self, found: JsonObject) -> Iterator[str]:
        for configuration in found.get("items") or ():
            for webhook in configuration.get("webhooks") or ():
                service = (webhook.get("clientConfig") or {}).get("service") or {}
                if service and (service.get("name"), service.get("namespace")) != self._service:
                    yield f"{service.get('namespace')}/{service.get('name')}"
