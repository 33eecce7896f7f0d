"""Which claims become a directory: all but those whose storage class cannot exist. Pure."""

from __future__ import annotations

from trainmaster.devcluster.settings import RESERVED_DOMAIN
from trainmaster.runtime.jsontree import JsonObject


def provisioning_problem(claim: JsonObject) -> tuple[str, str] | None:
    """Return reason and message of the event about a claim that stays pending; None if it becomes a directory."""
    name = claim["spec"].get("storageClassName") or ""
    if name.endswith(RESERVED_DOMAIN):
        return "ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found'
    return None
