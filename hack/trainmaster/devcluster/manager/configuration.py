"""The configuration of the manager: that of a user, laid over what the cluster needs.

- All its servers are on the loopback interface, and on free ports: several clusters on one machine would fight for the
  usual ones. Probes cannot be switched off, only moved: by them the cluster knows whether its manager is ready.
- Metrics are served by HTTP, so that a browser shows them, and where they were served before, if that port is free.
- Where the feature gate is on, trainers are told where they reach the status server.
- The history of ended jobs, where it is on, is kept in the state directory.
- The certificate is the cluster's, and so the manager makes none.
- Webhooks that the user has served elsewhere, or with other certificates, are not the cluster's to register.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from trainmaster.devcluster.listener import HOST, free_port
from trainmaster.devcluster.manager.webhooks import ManagerWebhooks
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import YamlError, load_yaml

_OFF: Final = "0"
_ADDRESS: Final = "healthProbeBindAddress"
_ANY_HOST: Final = frozenset({"", "0.0.0.0", "[::]", "::"})  # noqa: S104 - where the user has it listen
_SECTIONS: Final = ("webhook", "health", "metrics", "certManagement", "statusServer", "history", "featureGates")


@dataclass(frozen=True, slots=True)
class ManagerPorts:
    """The ports of the servers of the manager, on the loopback interface, as long as the cluster runs."""

    health: int
    metrics: int
    status_server: int

    @classmethod
    def choose(cls, before: Path) -> Self:
        """Choose free ports; that of metrics is the one in a merged configuration of the last start, if possible."""
        return cls(free_port(), free_port(before=_metrics_port(before)), free_port())


@dataclass(frozen=True, slots=True)
class ManagerConfiguration:
    """The merged configuration, and what follows from it for those who probe the manager."""

    content: JsonObject

    readiness: str | None
    """The URL of its readiness; None if the configuration names none that could be probed."""

    metrics: str
    """The URL of its metrics; empty if they are off."""

    registers_webhooks: bool
    """Whether its webhooks are those that the cluster registers."""

    served_jobs: frozenset[str] | None = None
    """The kinds of jobs of the Training Operator whose webhooks it has, in lower case; None: all."""


def merge_configuration(
    path: Path | None, webhooks: ManagerWebhooks, ports: ManagerPorts, *, history: Path
) -> ManagerConfiguration | None:
    """Complete the user's configuration; None if it cannot be read, which the manager will report."""
    try:
        given = {} if path is None else load_yaml(path.read_bytes())
    except (OSError, YamlError):
        return None
    if not isinstance(given, dict) or not all(isinstance(given.get(section) or {}, dict) for section in _SECTIONS):
        return None
    sections: dict[str, JsonObject] = {  # null is for the manager what is not there
        section: {key: value for key, value in (given.get(section) or {}).items() if value is not None}
        for section in _SECTIONS
    }
    if sections["health"].get(_ADDRESS) == _OFF:
        del sections["health"][_ADDRESS]
    webhook = {"host": HOST, "port": webhooks.port, "certDir": str(webhooks.certificates)} | sections["webhook"]
    health = {_ADDRESS: f"{HOST}:{ports.health}"} | sections["health"]
    metrics = {"bindAddress": f"{HOST}:{ports.metrics}", "secureServing": False} | sections["metrics"]
    status_server = {"host": HOST, "port": ports.status_server} | sections["statusServer"]
    content = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "shutdownDelayDuration": "0s",  # nothing stands between the API server and its webhooks
        **given,
        "webhook": webhook,
        "health": health,
        "metrics": metrics,
        "statusServer": status_server,
        "history": {"file": str(history.absolute())} | sections["history"],
        "certManagement": {**sections["certManagement"], "enable": False},
    }
    if sections["featureGates"].get(_STATUS_GATE) is True:
        _tell_trainers(content, f"https://{HOST}:{status_server['port']}")
    return ManagerConfiguration(
        content,
        readiness=_url(health[_ADDRESS], health.get("readinessEndpointName", "readyz")),
        metrics=_metrics_url(metrics),
        registers_webhooks=webhook.get("enabled") is not False
        and (webhook["port"], webhook["certDir"]) == (webhooks.port, str(webhooks.certificates)),
        served_jobs=_served_jobs(content.get("trainingOperator")),
    )


_STATUS_GATE: Final = "TrainJobStatus"
_STATUS_PLUGIN: Final = "trainjobstatus"


def _tell_trainers(content: JsonObject, server: str) -> None:
    """Add the URL of the status server to the options of the plugin that passes it on, unless the user did."""
    plugins = content.get("plugins") or {}
    if not isinstance(plugins, dict) or not isinstance(options := plugins.get("options") or {}, dict):
        return  # the manager will object
    if not isinstance(own := options.get(_STATUS_PLUGIN) or {}, dict):
        return
    content["plugins"] = {**plugins, "options": {**options, _STATUS_PLUGIN: {"server": server, **own}}}


def _metrics_port(merged: Path) -> int:
    """Return the port at which metrics were served by the last start; 0 if that was nowhere, or elsewhere."""
    try:
        host, _, port = load_yaml(merged.read_bytes())["metrics"]["bindAddress"].rpartition(":")
    except (OSError, YamlError, KeyError, TypeError, AttributeError):
        return 0
    return int(port) if host == HOST and port.isdecimal() and int(port) < 1 << 16 else 0


def _metrics_url(section: JsonObject) -> str:
    address = section["bindAddress"]
    scheme = "http" if section["secureServing"] is False else "https"
    return ("" if address == _OFF else _url(address, "metrics", scheme=scheme)) or ""


def _served_jobs(section: Any) -> frozenset[str] | None:
    if not isinstance(section, dict):
        return None  # the manager will object if there is one
    if section.get("enabled") is False:
        return frozenset()
    chosen = section.get("enableScheme")
    return frozenset(str(kind).lower() for kind in chosen) if isinstance(chosen, list) and chosen else None


def _url(address: Any, endpoint: Any, *, scheme: str = "http") -> str | None:
    """Return where we reach a server; None for settings of the wrong type, to which the manager will object."""
    if not isinstance(address, str) or not isinstance(endpoint, str):
        return None
    host, _, port = address.rpartition(":")
    return f"{scheme}://{HOST if host in _ANY_HOST else host}:{port}/{endpoint}"
