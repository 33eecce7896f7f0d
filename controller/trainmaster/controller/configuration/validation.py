"""What the options of several sections say of each other: contradictions, and what has no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel

from trainmaster.controller.configuration.fields import HTTP, OFF, is_loopback, parse_address, traces_url
from trainmaster.controller.configuration.loading import Problem
from trainmaster.controller.configuration.types import Configuration, Tracing, TrainingOperator
from trainmaster.runtime.api.constants import TRAIN_JOB_STATUS_GATE

_OTLP_GRPC: Final = 4317
_ANY_HOST = frozenset({None, "", "0.0.0.0", "::"})  # noqa: S104 - how files say it


def conflicts(configuration: Configuration, features: Mapping[str, bool]) -> Iterator[Problem]:
    """Say which servers would take the port of another one, or show to everybody what is not for everybody."""
    yield from _not_for_everybody(configuration)
    addresses = dict(_addresses(configuration, features))
    for (one, (host, port)), (other, (other_host, other_port)) in combinations(addresses.items(), 2):
        if port and port == other_port and (host == other_host or _ANY_HOST & {host, other_host}):
            yield Problem(other, f"port {port} is that of {one}; give each server one of its own")


def _not_for_everybody(configuration: Configuration) -> Iterator[Problem]:
    metrics = configuration.metrics
    is_off = metrics.bind_address == OFF
    is_for_everybody = not (is_off or metrics.auth.enabled or is_loopback(parse_address(metrics.bind_address)[0] or ""))
    for path, is_served, what in (
        ("enableDebuggingHandlers", configuration.enable_debugging_handlers, "they are"),
        ("history.enabled", configuration.history.enabled, ""),  # it is recorded all the same
        ("web.enabled", configuration.web.enabled, "it is"),
    ):
        if is_served and is_off and what:
            yield Problem(path, f'{what} on the metrics server; give metrics.bindAddress an address, not "0"')
        if is_served and is_for_everybody:
            yield Problem(
                path,
                "everybody who reaches the metrics server could read them; set metrics.auth.enabled to true, or "
                "metrics.bindAddress to 127.0.0.1:PORT, which kubectl port-forward reaches",
            )


def _addresses(
    configuration: Configuration, features: Mapping[str, bool]
) -> Iterator[tuple[str, tuple[str | None, int]]]:
    webhook, metrics, health = configuration.webhook, configuration.metrics, configuration.health
    if webhook.enabled:
        yield "webhook.port", (webhook.host, webhook.port)
    if metrics.bind_address != OFF:
        yield "metrics.bindAddress", parse_address(metrics.bind_address)
    if health.health_probe_bind_address != OFF:
        yield "health.healthProbeBindAddress", parse_address(health.health_probe_bind_address)
    if features[TRAIN_JOB_STATUS_GATE]:
        yield "statusServer.port", (None, configuration.status_server.port)


def notices(configuration: Configuration, features: Mapping[str, bool]) -> Iterator[Problem]:
    """Say what of a configuration has no effect, or another one than its author may think.

    What has its default is not told of: the file that the original ships writes all of them out.
    """
    yield from _server_notices(configuration, features)
    yield from _training_operator_notices(configuration.training_operator)
    yield from _tracing_notices(configuration.tracing)
    election = configuration.leader_election
    if not election.leader_elect:
        yield from _without_effect("leaderElection", election, "leaderElection.leaderElect is false")
    management = configuration.cert_management
    if not management.enable:
        why = "certManagement.enable is false, so certificates are read from webhook.certDir"
        yield from _without_effect("certManagement", management, why, but=("enable", "webhookServiceName"))
    elif not manages_certificates(configuration, status_server=features[TRAIN_JOB_STATUS_GATE]):
        why = "neither webhooks nor metrics nor the status server need a certificate"
        yield from _without_effect("certManagement", management, why)
    if any(protocol != HTTP for protocol in configuration.tls.next_protos):
        yield Problem("tls.nextProtos", f"the servers speak {HTTP} and nothing else")
    if configuration.tls.min_version == "1.3" and configuration.tls.cipher_suites:
        yield Problem("tls.cipherSuites", "no effect: they are of TLS 1.2, and tls.minVersion is 1.3")
    for name in sorted(set(configuration.plugins.disabled) & set(configuration.plugins.options)):
        yield Problem(f"plugins.options.{name}", "no effect: the plugin is in plugins.disabled")


def manages_certificates(configuration: Configuration, *, status_server: bool) -> bool:
    """Tell whether certificates are for us to make, and anything is served with one."""
    metrics = configuration.metrics
    serves_metrics = metrics.bind_address != OFF and metrics.secure_serving
    return configuration.cert_management.enable and (configuration.webhook.enabled or serves_metrics or status_server)


def _server_notices(configuration: Configuration, features: Mapping[str, bool]) -> Iterator[Problem]:
    webhook, metrics, health = configuration.webhook, configuration.metrics, configuration.health
    if not webhook.enabled:
        yield from _without_effect("webhook", webhook, "webhook.enabled is false", but=("enabled", "certDir"))
    if metrics.bind_address == OFF:
        why = 'metrics.bindAddress is "0", so there is no metrics server'
        yield from _without_effect("metrics", metrics, why, but=("bindAddress",))
    elif metrics.auth.enabled and not metrics.secure_serving:
        yield Problem(
            "metrics.auth.enabled",
            "tokens of those who read metrics travel unencrypted; set metrics.secureServing to true, unless a service "
            "mesh encrypts them",
        )
    if health.health_probe_bind_address == OFF:
        why = 'health.healthProbeBindAddress is "0", so there are no probes'
        yield from _without_effect("health", health, why, but=("healthProbeBindAddress",))
    history = configuration.history
    if not history.enabled:
        yield from _without_effect("history", history, "history.enabled is false")
    elif metrics.bind_address == OFF:
        why = (
            'metrics.bindAddress is "0", so the history is recorded and not served; trainmaster history --file reads it'
        )
        yield Problem("history.enabled", why)
    if not features[TRAIN_JOB_STATUS_GATE]:
        why = f"the feature gate {TRAIN_JOB_STATUS_GATE} is off, so there is no status server"
        yield from _without_effect("statusServer", configuration.status_server, why)


def _training_operator_notices(section: TrainingOperator) -> Iterator[Problem]:
    if not section.enabled:
        why = "trainingOperator.enabled is false"
        yield from _without_effect("trainingOperator", section, why, but=("enabled",))
        return
    for name in sorted(section.options):
        if section.enable_scheme and name not in section.enable_scheme:
            why = "the kind is not in trainingOperator.enableScheme"
            yield Problem(f"trainingOperator.options.{name}", f"no effect: {why}")
    if section.gang_scheduler_name == "scheduler-plugins":
        yield Problem(
            "trainingOperator.gangSchedulerName",
            "pods wait for a scheduler of that very name; the chart of scheduler-plugins calls its own "
            "scheduler-plugins-scheduler",
        )


def _tracing_notices(section: Tracing) -> Iterator[Problem]:
    if not section.endpoint:
        yield from _without_effect("tracing", section, "tracing.endpoint is not set, so there are no traces")
        return
    if urlsplit(traces_url(section.endpoint)).port == _OTLP_GRPC:
        yield Problem(
            "tracing.endpoint",
            f"{_OTLP_GRPC} is the port of OTLP over gRPC by convention; OTLP over HTTP, which is spoken here, has 4318",
        )
    if not section.sampling_rate_per_million:
        yield Problem(
            "tracing.samplingRatePerMillion",
            "it is 0, so no reconcile is traced, only admission requests that the API server traces",
        )


def _without_effect(path: str, section: BaseModel, why: str, *, but: tuple[str, ...] = ()) -> Iterator[Problem]:
    """Tell of each option of a section that has another value than its default."""
    default = type(section)()
    for name, field in type(section).model_fields.items():
        if field.alias not in but and getattr(section, name) != getattr(default, name):
            yield Problem(f"{path}.{field.alias}", f"no effect: {why}")
