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

    enabled: bool = Field(True, description="Whether admission webhooks are served.", json_schema_extra=OURS)
    host: str | None = Field(None, description="Where they listen.", json_schema_extra={"default": "all interfaces"})
    port: Port = Field(9443, description="Their port.")
    cert_dir: str = Field(
        "/tmp/k8s-webhook-server/serving-certs",  # noqa: S108 - where the original's manifests mount it
        description="The directory of `tls.crt` and `tls.key`, and of `ca.crt` for pods that report their progress. "
        "Webhooks, metrics and status server have this certificate; a new one is taken up within ten seconds.",
        json_schema_extra=OURS,
    )


class LeaderElection(_Section):
    """Which of several replicas acts; the durations are Go durations, for instance `15s`."""

    leader_elect: bool = Field(False, description="Whether one replica leads, and the others wait.")
    resource_lock: Literal["leases"] = Field("leases", description="Nothing else is possible.")
    resource_name: str = Field("trainer.kubeflow.org", description="The name of the Lease.")
    resource_namespace: str = Field(
        "", description="The namespace of the Lease.", json_schema_extra={"default": "that of the pod"}
    )
    lease_duration: Duration = Field("15s", description="After so long without a renewal another replica leads.")
    renew_deadline: Duration = Field(
        "10s", description="After so long without a renewal the leader ends; shorter than the lease."
    )
    retry_period: Duration = Field("2s", description="Between two tries.")

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
        description="Metrics are for bearers of a token that the API server authenticates (TokenReview) and allows "
        "`get` of the path `/metrics` (SubjectAccessReview): 401 and 403 for others, 500 while it cannot be asked. The "
        "manager needs to `create` `tokenreviews` and `subjectaccessreviews`. A good token is known for a minute, an "
        "allowed user for five, a denied one for 30 s.",
    )


class Metrics(_Section):
    """The metrics endpoint; the address "0" switches it off."""

    bind_address: Address = Field(":8443", description="Where metrics are served.")
    secure_serving: bool = Field(
        True, description="HTTPS, from the first good certificate in `webhook.certDir` on; otherwise HTTP."
    )
    auth: MetricsAuth = MetricsAuth()


class Health(_Section):
    """The probe endpoints; the address "0" switches them off."""

    health_probe_bind_address: Address = Field(":8081", description="Where probes are served, to everybody.")
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
        description="How many objects of a kind are reconciled at once, by `TrainJob.trainer.kubeflow.org`, "
        "`TrainingRuntime.trainer.kubeflow.org`, `ClusterTrainingRuntime.trainer.kubeflow.org`, and "
        "`PyTorchJob.kubeflow.org` and so on. Of kinds of jobs that are not named as many as the API server answers "
        "without delay: from 16 to 64, fewer where it refuses.",
        json_schema_extra={"default": "found for each kind of jobs, 1 runtime"},
    )


class CertManagement(_Section):
    """Certificates of the servers."""

    enable: bool = Field(
        True,
        description="Whether the manager makes certificates of its own: an authority and a serving certificate, kept "
        "in a Secret, renewed in time, and trusted by the webhook configurations ([certificates](certificates.md)). "
        "If `false`, somebody else fills `webhook.certDir`, for instance cert-manager.",
    )
    webhook_service_name: str = Field(
        "kubeflow-trainer-controller-manager",
        description="The Service by which the API server calls the webhooks, and pods the status server. Only webhook "
        "configurations that refer to it are written.",
    )
    webhook_secret_name: str = Field(
        "kubeflow-trainer-webhook-cert",
        description="The Secret of the certificates, in the namespace of the manager. It has to exist; an empty one is "
        "filled in.",
    )


class ClientConnection(_Section):
    """Limits of the client towards the API server: none, unless the file sets one.

    The original limits itself to 50 requests a second where the file says nothing, and so delays bursts of jobs that
    the server, with its own priorities and fairness, would take. Zero means no limit here as well.
    """

    qps: NotNegative | None = Field(
        None,
        description="Requests to the API server a second; zero is no limit.",
        json_schema_extra={"default": "no limit"},
    )
    burst: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Requests at once. Who sets one of the two gets 50 and 100 for the other.",
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
    port: Port = Field(
        10443, description="The port of the status server, where the feature gate `TrainJobStatus` is on."
    )
    qps: NotNegative = Field(5.0, description="Requests that it sends to the API server a second; zero is no limit.")
    burst: Annotated[int, Field(ge=0)] = Field(10, description="Those at once.")


class Tls(_Section):
    """TLS settings of all servers."""

    min_version: Literal["", "1.0", "1.1", "1.2", "1.3"] | None = Field(
        None,
        description="The lowest version that webhooks, metrics and status server speak: `1.0` to `1.3`.",
        json_schema_extra={"default": "`1.2`"},
    )
    cipher_suites: list[CipherSuite] = Field(
        default_factory=list,
        description="Suites of TLS 1.2, by the names of IANA. Those that are not secure are refused; those of TLS 1.3 "
        "are always on.",
        json_schema_extra={"default": "those of OpenSSL"},
    )
    next_protos: Protocols = Field(
        default_factory=lambda: [HTTP],
        description="The servers speak HTTP/1.1 only: it has to be in the list, and others are told in the log.",
    )


class Logging(_Section):
    """What is logged."""

    verbosity: Annotated[int, Field(ge=0)] = Field(
        0,
        description="From `2` on the log has the level debug, below it info. `--zap-log-level` and `--zap-devel` win "
        "over it.",
        json_schema_extra=RELOADED,
    )


class Tracing(_Section):
    """Traces of what the manager does, in the terms of Kubernetes' `TracingConfiguration`."""

    endpoint: Collector = Field(
        "",
        description="The collector that takes traces by OTLP over HTTP: `host:port`, which is HTTP, or a URL, whose "
        "path is `/v1/traces` unless it has one. Takes `pip install 'trainmaster[tracing]'`; see "
        "[tracing](tracing.md).",
        json_schema_extra={"default": "no traces"},
    )
    sampling_rate_per_million: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="Of a million objects, so many have their reconciles traced, each with all of them; and so many of "
        "a million admission requests that nobody traces yet. Those that the API server traces are traced in any case.",
    )


class Quarantine(_Section):
    """When plugins that are not ours are not called for a while."""

    failures: Annotated[int, Field(ge=1)] = Field(
        3,
        description="A plugin is quarantined after so many failures in a row: of different TrainJobs, or of any that "
        "exceed a limit.",
    )
    period: Period = Field("1m", description="After so long one call is let through. If it succeeds, all are.")


class Plugins(_Section):
    """Which plugins run, and with which options."""

    enabled: list[str] = Field(
        default_factory=lambda: ["*"],
        description="Plugins that are loaded, by the name of their entry point; `*` stands for all that are installed. "
        "Those of Trainmaster itself are loaded in any case.",
    )
    disabled: list[str] = Field(
        default_factory=list,
        description="Plugins that are left out all the same, ours too. They are not imported.",
    )
    options: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Options of plugins, by the same names. They are put into effect when the file changes, of plugins "
        "that say that they can (`reloads_options`).",
        json_schema_extra=RELOADED,
    )
    on_load_error: Literal["fail", "skip"] = Field(
        "fail",
        description="What becomes of the manager when a plugin that is not ours does not load: with `fail` it ends and "
        "says why, with `skip` it runs without the plugin. TrainJobs whose runtimes ask for what nobody serves then "
        "are blocked.",
    )
    failure_policy: dict[str, Literal["fail", "skip"]] = Field(
        default_factory=dict,
        description="What becomes of a TrainJob when a plugin fails, by plugin: `fail` blocks it, `skip` goes on "
        "without the plugin, and the condition PluginSkipped says so.",
        json_schema_extra={"default": "what the plugin says of itself, else `fail`"},
    )
    time_limit: TimeLimit = Field(
        "5s",
        description="How long one call of a plugin that is not ours may take; at admission 5 s at most. From "
        "`10ms` to `60s`.",
    )
    quarantine: Quarantine = Quarantine()


class TrainingOperator(_Section):
    """Jobs of `kubeflow.org/v1`, as the Training Operator has them."""

    enabled: bool = Field(
        True,
        description="Whether jobs of `kubeflow.org/v1` are served, of those kinds whose definitions are installed. A "
        "definition that comes later is noticed.",
    )
    enable_scheme: JobKindNames = Field(
        default_factory=list,
        description="The kinds that are served, each with its controller and its webhook: `pytorchjob` and so on, in "
        "any case.",
        json_schema_extra={"default": "all kinds that are installed"},
    )
    gang_scheduler_name: SchedulerName = Field(
        "",
        description="Who schedules all pods of a job at once: `volcano`, or the name of a scheduler with the plugin "
        "`coscheduling` of scheduler-plugins, which pods get as `schedulerName` unless they have one.",
        json_schema_extra={"default": "no gang scheduling"},
    )
    cluster_domain: Domain = Field(
        "",
        description="The domain at the end of the host names in `TF_CONFIG`, for instance `cluster.local`.",
        json_schema_extra={"default": "`CUSTOM_CLUSTER_DOMAIN` of the environment; else names end in `.svc`"},
    )
    max_replicas: Annotated[int, Field(ge=1, le=100_000)] = Field(
        10_000,
        description="How many pods a job may have; one of more is refused, or `Blocked` if it exists. Each look of the "
        "manager at a job goes through all of them.",
    )
    options: dict[JobKindName, dict[str, Any]] = Field(
        default_factory=dict,
        description="Options of kinds of jobs, by their names in lower case; see [below](#options-of-job-kinds).",
    )


class History(_Section):
    """The record of jobs that have ended, which outlives them; see [history.md](history.md)."""

    enabled: bool = Field(
        False,
        description="Whether ended jobs are recorded, by the replica that leads, and `/history/` is served where "
        "metrics are: only with `metrics.auth.enabled`, for whom RBAC allows `get` of the path, or on the loopback "
        "interface.",
    )
    file: HistoryFile = Field(
        "/var/lib/trainmaster/history.sqlite",
        description="The file of SQLite with the records, on a volume that stays. Its directory has to exist.",
    )
    database_url_file: str = Field(
        "",
        description="A file with the URL of a PostgreSQL database, which then has the records in place of `file`: "
        "`postgresql://USER:PASSWORD@HOST/DATABASE`, mounted from a Secret. It takes the extra `postgres`.",
        json_schema_extra={"default": "no database"},
    )
    max_records: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        10_000,
        description="How many ended jobs are kept at most: those that ended last, of no namespace more than "
        "of another one that has as many.",
    )
    max_age: Period = Field("2160h", description="How long after its end a job is kept at most; by default 90 days.")
    user_annotation: str = Field(
        "app.kubernetes.io/created-by",
        description="The annotation, or label, of a job that says who submitted it. Kubernetes itself keeps no record "
        "of that; a policy of the cluster may write it.",
    )


class Web(_Section):
    """The web page; see [web.md](web.md)."""

    enabled: bool = Field(
        False,
        description="Whether `/web/` is served where metrics are, by every replica: jobs and what became of them, "
        "to be read. Only with `metrics.auth.enabled`, for whom RBAC allows `get` of `/web/`, or on the loopback "
        "interface.",
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
        default_factory=dict, description="Gates by name; `--feature-gates` wins over them."
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
        description="Whether `/debug/` is served where metrics are: stacks, caches, queues, plugins, a profile, this "
        "configuration; see [operations](operations.md#debug). Only with `metrics.auth.enabled`, for whom RBAC allows "
        "`get` of the path, or on the loopback interface.",
        json_schema_extra=OURS,
    )
    watch_namespaces: Namespaces = Field(
        default_factory=list,
        description="The namespaces that are served. Each is watched for itself, so that rights in these are enough "
        "(see [namespaced.md](namespaced.md)).",
        json_schema_extra={"default": "all namespaces", **OURS},
    )
    shutdown_delay_duration: ShutdownDelay = Field(
        "5s",
        description="How long webhooks and status server go on to answer when the manager has been told to stop, and "
        "is not ready any more: until endpoints and load balancers have noticed. Up to `25s`, so that everything ends "
        "within the 30 s after which Kubernetes kills a pod. The manager of an embedded cluster does not wait.",
        json_schema_extra=OURS,
    )
