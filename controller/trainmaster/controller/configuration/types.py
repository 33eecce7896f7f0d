"""The sections of the configuration file, by the original's names: defaults, what is allowed, what each option does.

The table of docs/configuration.md is made of this by hack/generate_configuration.py: an option's description, in
Markdown, says what it does; `default` of its JSON schema what holds where the default is no value. Options and sections
marked `OURS` are unknown to the Go manager; those marked `RELOADED` need no restart. A section that is null in the file
is one that is not there.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic.alias_generators import to_camel

from trainmaster.controller.configuration.fields import (
    HTTP,
    Address,
    CipherSuite,
    Collector,
    Domain,
    Duration,
    Endpoint,
    HistoryFile,
    JobKindName,
    JobKindNames,
    KindName,
    Namespaces,
    NotNegative,
    Period,
    Port,
    Protocols,
    SchedulerName,
    ShutdownDelay,
    TimeLimit,
)
from trainmaster.runtime.api.meta import duration_seconds

API_VERSION: Final = "config.trainer.kubeflow.org/v1alpha1"
KIND: Final = "Configuration"

OURS: Final[dict[str, JsonValue]] = {"ours": True}
"""Marks, in the JSON schema, what the Go manager refuses as unknown."""

RELOADED: Final[dict[str, JsonValue]] = {"reloaded": True}
"""Marks, in the JSON schema, what takes effect in a running manager when the file changes."""

_LONGEST_WAIT: Final = 1.2
"""How many retry periods a renewal of the lease may wait: the elector demands more than that before its deadline."""


class _Section(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        validate_default=False,
        strict=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        """Take null for what is not there, as Go does: whoever comments out all of a section leaves its name behind."""
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class Webhook(_Section):
    """The admission webhook server."""

    enabled: bool = Field(True, description="Serve admission webhooks.", json_schema_extra=OURS)
    host: str | None = Field(None, description="Where they listen.", json_schema_extra={"default": "all interfaces"})
    port: Port = Field(9443, description="Their port.")
    cert_dir: str = Field(
        "/tmp/k8s-webhook-server/serving-certs",  # noqa: S108 - where the original's manifests mount it
        description="Directory of `tls.crt` and `tls.key`, the certificate of webhooks, metrics and status server, "
        "and of `ca.crt` for pods that report progress. New files are used within ten seconds.",
        json_schema_extra=OURS,
    )


class LeaderElection(_Section):
    """Which of several replicas acts; the durations are Go durations, for instance `15s`."""

    leader_elect: bool = Field(False, description="One replica leads, the others wait.")
    resource_lock: Literal["leases"] = Field("leases", description="The only value.")
    resource_name: str = Field("trainer.kubeflow.org", description="The name of the Lease.")
    resource_namespace: str = Field(
        "", description="The namespace of the Lease.", json_schema_extra={"default": "that of the pod"}
    )
    lease_duration: Duration = Field("15s", description="Another replica leads after this time without a renewal.")
    renew_deadline: Duration = Field(
        "10s", description="The leader ends after this time without a renewal; shorter than the lease."
    )
    retry_period: Duration = Field("2s", description="Time between two tries.")

    @model_validator(mode="after")
    def _periods_fit(self) -> Self:
        lease, renewal, retry = map(duration_seconds, (self.lease_duration, self.renew_deadline, self.retry_period))
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

    enabled: bool = Field(
        False,
        description="Serve metrics only for a token that the API server authenticates (TokenReview) and allows `get` "
        "of `/metrics` (SubjectAccessReview): otherwise 401 or 403, without an answer 500. The manager needs `create` "
        "of both reviews. Valid tokens are cached for a minute, allowed users for five minutes, denied ones for 30 s.",
    )


class Metrics(_Section):
    """The metrics endpoint; the address "0" switches it off."""

    bind_address: Address = Field(":8443", description="Where metrics are served.")
    secure_serving: bool = Field(
        True, description="HTTPS, once `webhook.certDir` has a valid certificate; otherwise HTTP."
    )
    auth: MetricsAuth = MetricsAuth()


class Health(_Section):
    """The probe endpoints; the address "0" switches them off."""

    health_probe_bind_address: Address = Field(":8081", description="Where probes are served, without authentication.")
    readiness_endpoint_name: Endpoint = Field("readyz", description="The path of readiness.")
    liveness_endpoint_name: Endpoint = Field("healthz", description="The path of liveness.")

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.readiness_endpoint_name == self.liveness_endpoint_name:
            raise ValueError("readinessEndpointName and livenessEndpointName must differ")
        return self


class Controller(_Section):
    """The reconcilers."""

    group_kind_concurrency: dict[KindName, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict,
        description="Objects reconciled at once, of each of the kinds `TrainJob.trainer.kubeflow.org`, "
        "`TrainingRuntime.trainer.kubeflow.org`, `ClusterTrainingRuntime.trainer.kubeflow.org`, "
        "`PyTorchJob.kubeflow.org` and so on. Without a number, the manager uses as many for jobs as the API server "
        "answers without delay, and fewer if the API server refuses requests.",
        json_schema_extra={"default": "jobs: 16 to 64, runtimes: 1"},
    )


class CertManagement(_Section):
    """Certificates of the servers."""

    enable: bool = Field(
        True,
        description="The manager makes [certificates](certificates.md): an authority and a serving certificate, "
        "stored in a Secret, renewed, and trusted by the webhook configurations. If `false`, cert-manager or another "
        "tool fills `webhook.certDir`.",
    )
    webhook_service_name: str = Field(
        "kubeflow-trainer-controller-manager",
        description="Service of webhooks and status server. Only webhook configurations that refer to it are written.",
    )
    webhook_secret_name: str = Field(
        "kubeflow-trainer-webhook-cert",
        description="Secret of the certificates, in the manager's namespace. It must exist; an empty one is filled.",
    )


class ClientConnection(_Section):
    """Limits of the client towards the API server: none, unless the file sets one.

    The original limits itself to 50 requests a second where the file says nothing, and so delays bursts of jobs that
    the server, with its own priorities and fairness, would take. Zero means no limit here as well.
    """

    qps: NotNegative | None = Field(
        None,
        description="Requests to the API server a second; 0: no limit.",
        json_schema_extra={"default": "no limit"},
    )
    burst: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Requests at once. If only one of both is set, the other is 50 (`qps`) or 100 (`burst`).",
        json_schema_extra={"default": "no limit"},
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        """Half a limit gets the other half from the original's defaults."""
        if not isinstance(data, dict):
            return data
        given = {key: value for key, value in data.items() if value is not None}
        return {"qps": 50.0, "burst": 100, **given} if given else given


class StatusServer(_Section):
    """The server to which trainers report progress."""

    host: str | None = Field(
        None,
        description="Where it listens.",
        json_schema_extra={"default": "all interfaces", **OURS},
    )
    port: Port = Field(10443, description="Port of the status server (feature gate `TrainJobStatus`).")
    qps: NotNegative = Field(5.0, description="Its requests to the API server a second; 0: no limit.")
    burst: Annotated[int, Field(ge=0)] = Field(10, description="Its requests at once.")


class Tls(_Section):
    """TLS settings of all servers."""

    min_version: Literal["", "1.0", "1.1", "1.2", "1.3"] | None = Field(
        None,
        description="Lowest version of webhooks, metrics and status server: `1.0` to `1.3`.",
        json_schema_extra={"default": "`1.2`"},
    )
    cipher_suites: list[CipherSuite] = Field(
        default_factory=list,
        description="Suites of TLS 1.2, by IANA names. Insecure ones are refused; those of TLS 1.3 are always on.",
        json_schema_extra={"default": "those of OpenSSL"},
    )
    next_protos: Protocols = Field(
        default_factory=lambda: [HTTP],
        description="Must contain `http/1.1`, which all servers speak; others are logged.",
    )


class Logging(_Section):
    """What is logged."""

    verbosity: Annotated[int, Field(ge=0)] = Field(
        0,
        description="From `2`: debug, below: info. `--zap-log-level` and `--zap-devel` override it.",
        json_schema_extra=RELOADED,
    )


class Tracing(_Section):
    """Traces of what the manager does, in the terms of Kubernetes' `TracingConfiguration`."""

    endpoint: Collector = Field(
        "",
        description="Collector of [traces](tracing.md) by OTLP over HTTP: `host:port` (HTTP), or a URL (default path "
        "`/v1/traces`). Needs the extra `tracing`.",
        json_schema_extra={"default": "no traces"},
    )
    sampling_rate_per_million: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="How many of a million objects have all their reconciles traced, and how many of a million "
        "admission requests are traced besides those that the API server traces.",
    )


class Quarantine(_Section):
    """When plugins that are not ours are not called for a while."""

    failures: Annotated[int, Field(ge=1)] = Field(
        3,
        description="Failures in a row that quarantine a plugin: of different TrainJobs, or calls beyond a limit.",
    )
    period: Period = Field("1m", description="Time until one call is tried. If it succeeds, the quarantine ends.")


class Plugins(_Section):
    """Which plugins run, and with which options."""

    enabled: list[str] = Field(
        default_factory=lambda: ["*"],
        description="Plugins to load, by entry point; `*`: all installed ones. Built-in plugins are always loaded.",
    )
    disabled: list[str] = Field(
        default_factory=list,
        description="Plugins not to import, built-in ones too.",
    )
    options: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Options of plugins, by the same names. Changes take effect at once for plugins with "
        "`reloads_options`.",
        json_schema_extra=RELOADED,
    )
    on_load_error: Literal["fail", "skip"] = Field(
        "fail",
        description="When a third-party plugin does not load: `fail` ends the manager, `skip` runs without the "
        "plugin; TrainJobs whose runtimes need it are blocked.",
    )
    failure_policy: dict[str, Literal["fail", "skip"]] = Field(
        default_factory=dict,
        description="When a plugin fails, by plugin: `fail` blocks the TrainJob, `skip` continues without the plugin, "
        "with the condition PluginSkipped.",
        json_schema_extra={"default": "what the plugin says of itself, else `fail`"},
    )
    time_limit: TimeLimit = Field(
        "5s",
        description="Limit of one call of a third-party plugin, `10ms` to `60s`; at admission at most 5 s.",
    )
    quarantine: Quarantine = Quarantine()


class TrainingOperator(_Section):
    """Jobs of `kubeflow.org/v1`, as the Training Operator has them."""

    enabled: bool = Field(
        True,
        description="Serve jobs of `kubeflow.org/v1`, of all kinds whose definitions are installed, also later.",
    )
    enable_scheme: JobKindNames = Field(
        default_factory=list,
        description="Kinds to serve, with controller and webhook: `pytorchjob` and so on, in upper or lower case.",
        json_schema_extra={"default": "all kinds that are installed"},
    )
    gang_scheduler_name: SchedulerName = Field(
        "",
        description="Gang scheduler: `volcano`, or a scheduler with the plugin `coscheduling`, which becomes "
        "`schedulerName` of pods that have none.",
        json_schema_extra={"default": "no gang scheduling"},
    )
    cluster_domain: Domain = Field(
        "",
        description="Domain at the end of host names in `TF_CONFIG`, for instance `cluster.local`.",
        json_schema_extra={"default": "`CUSTOM_CLUSTER_DOMAIN` of the environment; else names end in `.svc`"},
    )
    max_replicas: Annotated[int, Field(ge=1, le=100_000)] = Field(
        10_000,
        description="Most pods of a job; a larger one is refused, or `Blocked` if it exists. Each reconcile visits "
        "all pods.",
    )
    options: dict[JobKindName, dict[str, Any]] = Field(
        default_factory=dict,
        description="Options of kinds of jobs; see [below](#options-of-job-kinds).",
    )


class History(_Section):
    """The record of jobs that have ended, which outlives them; see [history.md](history.md)."""

    enabled: bool = Field(
        False,
        description="The leader records ended jobs; `/history/` is served beside metrics: with `metrics.auth.enabled` "
        "to callers who may `get` the path, otherwise only on the loopback interface.",
    )
    file: HistoryFile = Field(
        "/var/lib/trainmaster/history.sqlite",
        description="SQLite file of the records, in an existing directory of a persistent volume.",
    )
    database_url_file: str = Field(
        "",
        description="File, mounted from a Secret, with the URL of a PostgreSQL database that replaces `file`: "
        "`postgresql://USER:PASSWORD@HOST/DATABASE`. Needs the extra `postgres`.",
        json_schema_extra={"default": "no database"},
    )
    max_records: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        10_000,
        description="Most ended jobs to keep. The namespace with the most records loses its oldest first.",
    )
    max_age: Period = Field("2160h", description="Longest time to keep a job after its end; default: 90 days.")
    user_annotation: str = Field(
        "app.kubernetes.io/created-by",
        description="Annotation or label of a job with its submitter, which Kubernetes does not record; a policy of "
        "the cluster may write it.",
    )


class Web(_Section):
    """The web page; see [web.md](web.md)."""

    enabled: bool = Field(
        False,
        description="Every replica serves `/web/`, a read-only page of jobs, beside metrics; access as for "
        "`history.enabled`.",
    )


class Configuration(_Section):
    """The whole file."""

    api_version: Literal["config.trainer.kubeflow.org/v1alpha1"] = Field(
        API_VERSION, description=f"`{API_VERSION}`", json_schema_extra={"default": ""}
    )
    kind: Literal["Configuration"] = Field(KIND, description=f"`{KIND}`", json_schema_extra={"default": ""})
    webhook: Webhook = Webhook()
    leader_election: LeaderElection = LeaderElection()
    metrics: Metrics = Metrics()
    health: Health = Health()
    controller: Controller = Controller()
    cert_management: CertManagement = CertManagement()
    client_connection: ClientConnection = ClientConnection()
    status_server: StatusServer = StatusServer()
    feature_gates: dict[str, bool] = Field(
        default_factory=dict, description="Gates by name; `--feature-gates` overrides them."
    )
    tls: Tls = Tls()
    logging: Logging = Field(Logging(), json_schema_extra=OURS)
    tracing: Tracing = Field(Tracing(), json_schema_extra=OURS)
    plugins: Plugins = Field(Plugins(), json_schema_extra=OURS)
    training_operator: TrainingOperator = Field(TrainingOperator(), json_schema_extra=OURS)
    history: History = Field(History(), json_schema_extra=OURS)
    web: Web = Field(Web(), json_schema_extra=OURS)
    enable_debugging_handlers: bool = Field(
        False,
        description="Serve `/debug/` beside metrics: stacks, caches, queues, plugins, a profile, this configuration "
        "([operations](operations.md#debug)); access as for `history.enabled`.",
        json_schema_extra=OURS,
    )
    watch_namespaces: Namespaces = Field(
        default_factory=list,
        description="Namespaces to serve. Each is watched separately, so rights in these are enough ([named "
        "namespaces](rbac.md#two-namespaces)).",
        json_schema_extra={"default": "all namespaces", **OURS},
    )
    shutdown_delay_duration: ShutdownDelay = Field(
        "5s",
        description="How long webhooks and status server still answer after SIGTERM, until endpoints and load "
        "balancers have noticed; up to `25s`, because Kubernetes kills the pod after 30 s. On an embedded cluster "
        "there is no delay.",
        json_schema_extra=OURS,
    )
