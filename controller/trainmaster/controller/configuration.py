"""The configuration file: `config.trainer.kubeflow.org/v1alpha1`, kind `Configuration`, as the Go controller reads it.

Reading is strict: unknown and repeated fields are errors, and all errors are reported together, each with its path.
Beyond the original, `plugins` configures plugins, `shutdownDelayDuration` the drain at the end, and a partial
`leaderElection` block gets defaults for the rest. What could have no effect is refused, or told by `notices` where the
file that the original ships says it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from trainmaster.controller.ciphersuites import CIPHER_SUITES, TLS_1_3_SUITES
from trainmaster.controller.resources import RUNTIMES, TRAINJOBS
from trainmaster.runtime.yamltext import YamlError, load_yaml

API_VERSION: Final = "config.trainer.kubeflow.org/v1alpha1"
KIND: Final = "Configuration"

OFF: Final = "0"
"""The address that switches a server off."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_WAIT: Final = 1.2
"""How many retry periods a renewal of the lease may wait: the elector demands more than that before its deadline."""

LONGEST_SHUTDOWN_DELAY: Final = 25.0
"""Seconds; after 30 from the signal Kubernetes kills a pod, and the servers end in between."""

_HTTP: Final = "http/1.1"


def parse_address(address: str) -> tuple[str | None, int]:
    """Split `host:port`, or `:port` for all interfaces.

    Raises:
        ValueError: It is not of that form.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"address {address!r} must be host:port or :port")
    return host.strip("[]") or None, int(port)


def _bindable(address: str) -> str:
    if address != OFF:
        parse_address(address)
    return address


Port = Annotated[int, Field(ge=1, le=65535)]
NotNegative = Annotated[float, Field(ge=0)]
Duration = Annotated[str, Field(pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$")]
Address = Annotated[str, AfterValidator(_bindable)]


def _endpoint(name: str) -> str:
    """Read the name of a probe, with the slash before it or without."""
    if not re.fullmatch(r"/?[A-Za-z0-9_.-]+", name):
        raise ValueError(f"{name!r} must be one part of a path, as readyz")
    return name.removeprefix("/")


def _known_kind(key: str) -> str:
    known = [f"{each.kind}.{each.group}" for each in (TRAINJOBS, *RUNTIMES.values())]
    if key not in known:
        raise ValueError(f"there is no controller of {key!r}; there are those of {', '.join(known)}")
    return key


KindName = Annotated[str, AfterValidator(_known_kind)]


def _known_suite(suite: str) -> str:
    if suite not in CIPHER_SUITES and suite not in TLS_1_3_SUITES:
        known = ", ".join([*CIPHER_SUITES, *sorted(TLS_1_3_SUITES)])
        raise ValueError(f"{suite!r} is unknown or not secure; known are {known}")
    return suite


def _with_http(protocols: list[str]) -> list[str]:
    if protocols and _HTTP not in protocols:
        raise ValueError(f"{_HTTP} must be among them: the servers speak nothing else")
    return protocols


def _drainable(duration: str) -> str:
    if seconds(duration) > LONGEST_SHUTDOWN_DELAY:
        raise ValueError(f"{duration} must not be longer than {LONGEST_SHUTDOWN_DELAY:g}s: pods are killed after 30s")
    return duration


class ConfigurationInvalid(Exception):
    """The configuration file cannot be used; the message has one line for each error."""


class _Section(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        validate_default=False,
        strict=True,
    )


class Webhook(_Section):
    """The admission webhook server."""

    enabled: bool = True
    port: Port = 9443
    host: str | None = None
    cert_dir: str = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - where the original's manifests mount it
    """The directory of `tls.crt` and `tls.key`."""


class LeaderElection(_Section):
    """Which of several replicas acts; the durations are Go durations, for instance `15s`."""

    leader_elect: bool = False
    resource_lock: Literal["leases"] = "leases"
    resource_namespace: str = ""
    resource_name: str = "trainer.kubeflow.org"
    lease_duration: Duration = "15s"
    renew_deadline: Duration = "10s"
    retry_period: Duration = "2s"

    @model_validator(mode="after")
    def _periods_fit(self) -> Self:
        lease, renewal, retry = map(seconds, (self.lease_duration, self.renew_deadline, self.retry_period))
        if not retry > 0:
            raise ValueError(f"retryPeriod ({self.retry_period}) must be longer than zero")
        if not renewal > _LONGEST_WAIT * retry:
            raise ValueError(
                f"renewDeadline ({self.renew_deadline}) must be longer than {_LONGEST_WAIT} times "
                f"retryPeriod ({self.retry_period})"
            )
        if not lease > renewal:
            raise ValueError(
                f"leaseDuration ({self.lease_duration}) must be longer than renewDeadline ({self.renew_deadline})"
            )
        return self


class MetricsAuth(_Section):
    """Who may read metrics."""

    enabled: bool = False


class Metrics(_Section):
    """The metrics endpoint; the address "0" switches it off."""

    bind_address: Address = ":8443"
    secure_serving: bool = True
    auth: MetricsAuth = MetricsAuth()


class Health(_Section):
    """The probe endpoints; the address "0" switches them off."""

    health_probe_bind_address: Address = ":8081"
    readiness_endpoint_name: Annotated[str, AfterValidator(_endpoint)] = "readyz"
    liveness_endpoint_name: Annotated[str, AfterValidator(_endpoint)] = "healthz"

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.readiness_endpoint_name == self.liveness_endpoint_name:
            raise ValueError("readinessEndpointName and livenessEndpointName must differ")
        return self


class Controller(_Section):
    """The reconcilers."""

    group_kind_concurrency: dict[KindName, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """How many objects of a kind are reconciled at once, by `Kind.group`."""


class CertManagement(_Section):
    """Certificates of the webhook server."""

    enable: bool = True
    webhook_service_name: str = "kubeflow-trainer-controller-manager"
    webhook_secret_name: str = "kubeflow-trainer-webhook-cert"  # noqa: S105 - the name of a Secret, not a secret


class ClientConnection(_Section):
    """Limits of the client towards the API server: none, unless the file sets one.

    The original limits itself to 50 requests a second where the file says nothing, and so delays bursts of jobs that
    the server, with its own priorities and fairness, would take. Zero means no limit here as well.
    """

    qps: NotNegative | None = None
    burst: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        """Half a limit gets the other half from the original's defaults."""
        return {"qps": 50.0, "burst": 100, **data} if isinstance(data, dict) and data else data


class StatusServer(_Section):
    """The server to which trainers report progress."""

    port: Port = 10443
    qps: NotNegative = 5.0
    burst: Annotated[int, Field(ge=0)] = 10


class Tls(_Section):
    """TLS settings of all servers."""

    min_version: Literal["", "1.0", "1.1", "1.2", "1.3"] | None = None
    cipher_suites: list[Annotated[str, AfterValidator(_known_suite)]] = Field(default_factory=list)
    next_protos: Annotated[list[str], AfterValidator(_with_http)] = Field(default_factory=lambda: [_HTTP])


class Plugins(_Section):
    """Which plugins run, and with which options."""

    disabled: list[str] = Field(default_factory=list)
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Keyword arguments for the constructors of plugins, by entry-point name."""


class Configuration(_Section):
    """The whole file."""

    api_version: Literal["config.trainer.kubeflow.org/v1alpha1"] = API_VERSION
    kind: Literal["Configuration"] = KIND
    webhook: Webhook = Webhook()
    leader_election: LeaderElection | None = None
    metrics: Metrics = Metrics()
    health: Health = Health()
    controller: Controller = Controller()
    cert_management: CertManagement = CertManagement()
    client_connection: ClientConnection = ClientConnection()
    status_server: StatusServer = StatusServer()
    feature_gates: dict[str, bool] = Field(default_factory=dict)
    tls: Tls = Tls()
    plugins: Plugins = Plugins()
    shutdown_delay_duration: Annotated[Duration, AfterValidator(_drainable)] = "5s"
    """How long webhooks and status server answer after readiness is down, as `--shutdown-delay-duration` of
    kube-apiserver: until endpoints and load balancers have noticed."""


def notices(configuration: Configuration) -> list[str]:
    """Say what of a configuration has no effect here, although the original knows it; a sentence for each."""
    said = []
    management = configuration.cert_management
    if management.enable and "enable" in management.model_fields_set:
        said.append(
            "certManagement.enable: this manager makes no certificates; it serves those in webhook.certDir, "
            "which for instance cert-manager renews"
        )
    if "webhook_secret_name" in management.model_fields_set:
        said.append("certManagement.webhookSecretName: certificates are read from webhook.certDir, not from a Secret")
    if any(protocol != _HTTP for protocol in configuration.tls.next_protos):
        said.append(f"tls.nextProtos: the servers speak {_HTTP} and nothing else")
    return said


def load_configuration(path: Path | None) -> Configuration:
    """Read the configuration file; without one, the defaults.

    Raises:
        ConfigurationInvalid: The file cannot be read, or says something wrong.
    """
    if path is None:
        return Configuration()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationInvalid(f"failed to read config file: {path}: {error}") from error
    try:
        return parse_configuration(load_yaml(text))
    except (YamlError, ConfigurationInvalid) as error:
        raise ConfigurationInvalid(f"failed to decode config file: {path}: {error}") from error


def parse_configuration(data: object) -> Configuration:
    """Check a decoded configuration.

    Raises:
        ConfigurationInvalid: It says something wrong.
    """
    if not isinstance(data, dict):
        raise ConfigurationInvalid(f"the file must hold a mapping with apiVersion {API_VERSION} and kind {KIND}")
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if data.get(field) != expected:
            raise ConfigurationInvalid(f"{field} must be {expected!r}, not {data.get(field)!r}")
    try:
        return Configuration.model_validate(data)
    except ValidationError as error:
        lines = [f"{_path(problem['loc'])}: {_text(problem)}" for problem in error.errors()]
        raise ConfigurationInvalid("invalid configuration: " + "; ".join(lines)) from error


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def _text(problem: Any) -> str:
    if problem["type"] == "extra_forbidden":
        return "unknown field"
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    message = str(problem["msg"]).removeprefix("Input ").removeprefix("should ")
    return f"must {message[0].lower()}{message[1:]}, got {problem['input']!r}" if message else str(problem["msg"])


def seconds(duration: str) -> float:
    """Convert a Go duration such as `1m30s` to seconds."""
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9.]+)(ms|s|m|h)", duration))
