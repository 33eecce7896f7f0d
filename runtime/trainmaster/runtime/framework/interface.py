"""The extension points: everything that a plugin can do.

A plugin is a class that is registered under the entry-point group `trainmaster.plugins`. Its attributes are read before
it is constructed. All but `name` are optional:

- `name`: the name of its entry point, used in the configuration, metrics, logs and messages;
- `api_version`: the version of this interface that it was written for, "major.minor", default "1.0". It runs with that
  version and all later ones of the same major version;
- `maturity`: "alpha", "beta" or "stable" (default), for `trainmaster plugins list`;
- `feature_gate`: the feature gate that it needs;
- `options_model`: a pydantic model of `plugins.options.<name>` in the configuration; the plugin is made by
  `Plugin(options)`. Without a model, options are keyword arguments;
- `reloads_options`: whether it may be recreated when its options change;
- `priority`, `before`, `after`: its place within each phase, see `trainmaster.runtime.framework.descriptor`;
- `failure_policy`: "fail" (default) blocks the job when the plugin fails, "skip" continues without the plugin. The
  configuration has precedence;
- `replaces`: plugins that do not run for the TrainJobs that it serves, for example `("jobset",)`.

It serves all TrainJobs, unless it has one of these:

- `policies`: the fields of `mlPolicy` or `podGroupPolicy` that it serves, for example `("torch",)`, or `"scheduling"`,
  a field of the runtime itself. A runtime whose policy no plugin serves cannot be used;
- `ml_policy_config`, `pod_group_policy_config`: pydantic models of the policy `custom` with its name,
  `{name: <its name>, config: {...}}`. It serves the runtimes that have one;
- `applies_to(info, job)`: decides for one TrainJob, instead of these.

It has any of the methods below. Each declares the arguments that it needs, by name; later versions add arguments. All
but `status` and `watch_extension` may also take `config`, the runtime's policy `custom` as the plugin's model, or None.
Methods are synchronous and do no I/O, except reading a `SecretFile`. They may run in two threads at once. No other
attribute may be named like an extension point or one of these attributes. What a method gets is its own to change, and
what it returns is copied.

An exception of a plugin fails the TrainJobs that use it, with a condition that names the plugin. `Rejected` means that
the job cannot be built as requested, `NotReady` that it cannot be built yet. `validate` reports the same at admission,
by field: it returns each `FieldError` and `FieldWarning`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch

API_VERSION = (1, 5)
"""Version of this interface: a new minor version adds, a new major version may break."""

ENTRY_POINT_GROUP = "trainmaster.plugins"


class Rejected(Exception):
    """Raised by a plugin: this TrainJob cannot be built, for a reason that its owner can change.

    Admission refuses it with this text. An existing one gets the condition Blocked with the reason BuildRejected and is
    retried with backoff; its running workload continues.
    """


class NotReady(Rejected):
    """Raised by a plugin: this TrainJob cannot be built yet, because something outside of it is missing.

    It is admitted with this text as a warning, then handled as with `Rejected`. It is retried at once when `Watch.jobs`
    of the missing kind returns it, otherwise with backoff.
    """


class KindNotServed(NotReady):
    """A plugin that serves the TrainJob needs a kind that the cluster does not serve (yet), or not to the manager."""

    def __init__(self, watch: Watch) -> None:
        group = watch.api_version.rpartition("/")[0]
        definition = f" ({watch.plural}.{group})" if group else ""
        super().__init__(
            f"the cluster does not serve {watch.kind} ({watch.api_version}), which the plugin {watch.declared_by} "
            f"needs, or the manager may not read it; tell your administrator to install its definition{definition}, to "
            "grant the right, or to disable the plugin"
        )


class ApplyWhen(Enum):
    """When an object that `build` returned is written."""

    ALWAYS = "always"
    """Whenever it differs from what was applied before."""

    MISSING = "missing"
    """Only while it does not exist; an existing one is never changed."""

    ONCE = "once"
    """The same, by a request that needs only the right to create: for kinds with `Watch.creates_only`."""

    SUSPENDED = "suspended"
    """While it does not exist, and while the TrainJob or the object is suspended: a running one is left alone."""


@dataclass(frozen=True, slots=True)
class Desired:
    """An object that should exist, and when to write it."""

    object: JsonObject
    """Complete, as JSON, with apiVersion, kind and metadata.name."""

    when: ApplyWhen = ApplyWhen.ALWAYS
    """When it is written."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """API version, kind and name: unique within one resolution."""
        return self.object["apiVersion"], self.object["kind"], self.object["metadata"]["name"]


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What a workload says about itself, in terms of the TrainJob."""

    conditions: list[JsonObject] = field(default_factory=list)
    """Complete or Failed, as metav1.Condition, when the workload has ended."""

    jobs_status: list[JsonObject] | None = None
    """The TrainJob's `status.jobsStatus`; None keeps what is there."""


class Plugin(Protocol):
    """What every plugin has."""

    name: str
    """That of its entry point, in small letters."""


@runtime_checkable
class AppliesTo(Protocol):
    """Decides which TrainJobs a plugin serves."""

    def applies_to(self, info: Info, job: TrainJob) -> bool:
        """Return whether this plugin runs for a TrainJob; `info` is as before any plugin, and must not change."""


@runtime_checkable
class EnforceMLPolicy(Protocol):
    """Applies the runtime's `mlPolicy`: node counts, environment, ports, commands."""

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        """Change `info`, if the policy is this plugin's."""


@runtime_checkable
class EnforcePodGroup(Protocol):
    """Applies the runtime's `podGroupPolicy`: pod labels and annotations of a gang scheduler."""

    def enforce_pod_group(self, info: Info, job: TrainJob) -> None:
        """Change `info`, if the policy is this plugin's."""


@runtime_checkable
class EnforcePodSpec(Protocol):
    """Changes pods for purposes outside of both policies."""

    def enforce_pod_spec(self, info: Info, job: TrainJob) -> None:
        """Change the pod sets of `info`."""


@runtime_checkable
class PreBuild(Protocol):
    """Brings `info` up to date before objects are built: counts into templates, endpoints of all pods."""

    def pre_build(self, info: Info, job: TrainJob) -> None:
        """Change `info`."""


@runtime_checkable
class Build(Protocol):
    """Makes the objects that a TrainJob becomes."""

    def build(self, info: Info, job: TrainJob, listers: Listers) -> Iterable[Desired]:
        """Return complete objects; the framework adds missing owner references and namespaces."""


@runtime_checkable
class WatchExtension(Protocol):
    """Declares what a plugin needs from the cluster."""

    def watch_extension(self) -> Iterable[Watch]:
        """Return the kinds to cache; called once at start."""


@runtime_checkable
class Validate(Protocol):
    """Checks a TrainJob at admission, before anything is built."""

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterable[FieldError | FieldWarning]:
        """Return errors, each of which refuses the TrainJob, and warnings; `old` is the stored object in an update.

        `info` is the runtime with the patches of the TrainJob, before any plugin ran. Use `node_count(info, job)` for
        the number of nodes.
        """


@runtime_checkable
class Status(Protocol):
    """Reads the state of the workload that this plugin builds."""

    def status(self, job: TrainJob, listers: Listers) -> StatusReport | None:
        """Return the state of the workload, or None if this plugin has none: then the next plugin is asked."""
