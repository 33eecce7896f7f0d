"""Whether another operator is in charge of the jobs of `kubeflow.org/v1`: the Go one has no lease that would tell.

Guarantees:
- While the validating webhooks of these jobs lead to another Service, no job is touched: who admits jobs serves them.
  Both at once would undo what the other one writes.
- An operator without webhooks cannot be seen, and where we have no right to look nothing can: then jobs are served.
- Any other failure tells nothing: jobs are left alone until the next look.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import structlog

from trainmaster.controller.certificates.webhook_names import JOB_VALIDATOR
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

POLICY_RULES: Final = (
    PolicyRule(
        resource=JOB_VALIDATOR.resource,
        verbs=("list",),
        needed_by="jobs",
        reason="leave the jobs of kubeflow.org/v1 to another operator while their webhooks lead to that",
        names=(JOB_VALIDATOR.name,),
        optional=True,
    ),
)


class OtherOperator:
    """Looks for another operator."""

    def __init__(self, client: KubeClient, *, service: tuple[str, str]) -> None:
        self._client = client
        self._service = service
        self._told: str | None = None

    async def is_in_charge(self) -> bool | None:
        """Return whether another operator admits jobs, and log it the first time; None if that cannot be told."""
        try:
            found = await self._client.list(
                JOB_VALIDATOR.resource, None, field_selector=f"metadata.name={JOB_VALIDATOR.name}", limit=1
            )
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
                webhooks=JOB_VALIDATOR.name,
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
