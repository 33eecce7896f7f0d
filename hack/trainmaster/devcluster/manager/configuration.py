"""The configuration of the manager: that of a user, laid over what the cluster needs.

- Several clusters on one machine would fight for the usual ports: metrics are off unless the user asks for them, and
  probes are on a free port of the loopback interface. They cannot be switched off, only moved: by them the cluster
  knows whether its manager is ready.
- The certificate of the webhooks is the cluster's, and so the manager makes none.
- Webhooks that the user has served elsewhere, or with other certificates, are not the cluster's to register.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainmaster.devcluster.listener import HOST, free_port
from trainmaster.devcluster.manager.webhooks import ManagerWebhooks
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import YamlError, load_yaml

_OFF: Final = "0"
_ADDRESS: Final = "healthProbeBindAddress"
_ANY_HOST: Final = frozenset({"", "0.0.0.0", "[::]", "::"})  # noqa: S104 - where the user has it listen


@dataclass(frozen=True, slots=True)
class ManagerConfiguration:
    """The merged configuration, and what follows from it for those who probe the manager."""

    content: JsonObject

    readiness: str | None
    """The URL of its readiness; None if the configuration names none that could be probed."""

    registers_webhooks: bool
    """Whether its webhooks are those that the cluster registers."""

    served_jobs: frozenset[str] | None = None
    """The kinds of jobs of the Training Operator whose webhooks it has, in lower case; None: all."""


def merge_configuration(path: Path | None, webhooks: ManagerWebhooks) -> ManagerConfiguration | None:
    """Complete the user's configuration; None if it cannot be read, which the manager will report."""
    base: JsonObject = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "metrics": {"bindAddress": _OFF},
        "shutdownDelayDuration": "0s",  # nothing stands between the API server and its webhooks
    }
    webhook = {"host": HOST, "port": webhooks.port, "certDir": str(webhooks.certificates)}
    health = {_ADDRESS: f"{HOST}:{free_port()}"}
    try:
        given = {} if path is None else load_yaml(path.read_bytes())
    except (OSError, YamlError):
        return None
    if not isinstance(given, dict) or not all(
        isinstance(given.get(section) or {}, dict) for section in ("webhook", "health", "certManagement")
    ):
        return None
    wanted_health = given.get("health") or {}
    if wanted_health.get(_ADDRESS) == _OFF:
        wanted_health = {key: value for key, value in wanted_health.items() if key != _ADDRESS}
    content = {
        **base,
        **given,
        "webhook": {**webhook, **(given.get("webhook") or {})},
        "health": {**health, **wanted_health},
        "certManagement": {**(given.get("certManagement") or {}), "enable": False},
    }
    return ManagerConfiguration(
        content,
        readiness=_readiness(content["health"]),
        registers_webhooks=content["webhook"].get("enabled") is not False
        and all(content["webhook"][key] == webhook[key] for key in ("port", "certDir")),
        served_jobs=_served_jobs(content.get("trainingOperator")),
    )


def _served_jobs(section: Any) -> frozenset[str] | None:
    if not isinstance(section, dict):
        return None  # the manager will object if there is one
    if section.get("enabled") is False:
        return frozenset()
    chosen = section.get("enableScheme")
    return frozenset(str(kind).lower() for kind in chosen) if isinstance(chosen, list) and chosen else None


def _readiness(health: dict[str, Any]) -> str | None:
    address, endpoint = health[_ADDRESS], health.get("readinessEndpointName", "readyz")
    if not isinstance(address, str) or not isinstance(endpoint, str):
        return None  # the manager will object
    host, _, port = address.rpartition(":")
    return f"http://{HOST if host in _ANY_HOST else host}:{port}/{endpoint}"
