"""The extension points: everything that a plugin can do.

A plugin is a class that is registered under the entry-point group `trainmaster.plugins`. Its attributes describe it;
they are read before it is made, so that what does not fit is refused before anything of it runs:

- `name`: that of its entry point, and its name everywhere: in the configuration, in the `before` and `after` of other
  plugins, in metrics, logs and messages;
- `api_version` (optional): the version of this interface that it was written for, as "major.minor"; default is "1.0".
  It runs with that version and all later ones of the same major version;
- `maturity` (optional): "alpha", "beta" or "stable", the default; `trainmaster plugins list` shows it;
- `feature_gate` (optional): the feature gate without which it is not loaded;
- `options_model` (optional): a model of pydantic for its options in the configuration file, `plugins.options.<name>`.
  It is made with one, `Plugin(options)`. Without a model it is made with the options as keyword arguments, or with
  none;
- `reloads_options` (optional): whether it may be made anew while the manager runs, because its options have changed;
- `priority`, `before`, `after` (optional): its place within each phase, see `trainmaster.runtime.framework.descriptor`;
- `failure_policy` (optional): what becomes of a job when it fails: "fail", the default, blocks the job; "skip" goes on
  without it, and the job's condition PluginSkipped says so. The configuration may say otherwise.

Whom it serves, which are all TrainJobs unless it says otherwise:

- `policies` (optional): the fields of `mlPolicy` or `podGroupPolicy` that it serves, for instance `("torch",)`; a
  runtime with a policy that no plugin serves cannot be used, rather than being run without what it asks for;
- `ml_policy_config`, `pod_group_policy_config` (optional): models of pydantic for the policy `mlPolicy.custom` or
  `podGroupPolicy.custom` of its name: `{name: <its name>, config: {...}}`. It serves the runtimes that have one;
- `applies_to(info, job)` (optional): decides instead of these, for one TrainJob;
- `replaces` (optional): plugins that do not run for the TrainJobs that this one serves, for instance `("jobset",)`.

Then it has any of the methods below. Each is called with arguments by name, those that it takes: fewer than here are
enough, and what a later version adds changes nothing for it. Beyond what stands here all but `status` and
`watch_extension` may take `config`: the policy `custom` of the runtime as the plugin's model, or None. All are
synchronous and must neither block nor do I/O, but to read a `SecretFile`. They are called in threads of their own: what
a plugin keeps must stand two calls at once.

No other attribute has the name of an extension point or of one of these attributes, or nearly so. What a method gets is
its own to change, and what it returns is copied.

Phases of a resolution, in order: `enforce_ml_policy`, `enforce_pod_group`, `enforce_pod_spec`, `pre_build`, `build`.
Whatever a plugin raises fails the TrainJobs that use it, with a condition that names the plugin, and nothing else;
`Rejected` is the way to say that the job cannot be built as it was asked for, `NotReady` that it cannot be built yet.

At admission, `validate` says the same earlier and by field: it returns each `FieldError` and each `FieldWarning` of
`trainmaster.runtime.field_errors`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch

API_VERSION = (1, 5)
"""Version of this interface: a new minor version adds, a new major version may break."""

ENTRY_POINT_GROUP = "trainmaster.plugins"


class Rejected(Exception):
    """Raised by a plugin: this TrainJob cannot be built, for a reason that its owner can understand and change.

    At admission, when all but `status` is called, too, it is refused with this text. One that exists already has it in
    the condition Blocked, with the reason BuildRejected, and is tried again with backoff; what runs of it goes on, and
    its end is told.
    """


class NotReady(Rejected):
    """Raised by a plugin: this TrainJob cannot be built yet, for lack of something outside of it that may still come.

    It is admitted, with this as a warning. From then on it is as if the plugin had raised `Rejected`. It goes on at
    once if what is missing is of a kind whose `Watch.jobs` returns the TrainJob, and otherwise with the next try.
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
    """The same, by a request that takes the right to create and no other: for kinds of `Watch.creates_only`."""

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
    """Decides whom a plugin serves."""

    def applies_to(self, info: Info, job: TrainJob) -> bool:
        """Tell whether this plugin runs for a TrainJob; `info` is as it is before any plugin ran, and stays so."""


@runtime_checkable
class EnforceMLPolicy(Protocol):
    """Applies the runtime's `mlPolicy`: node counts, environment, ports, commands."""

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        """Change `info` as the policy wants; do nothing when the policy is not this plugin's."""


@runtime_checkable
class EnforcePodGroup(Protocol):
    """Applies the runtime's `podGroupPolicy`: pod labels and annotations of a gang scheduler."""

    def enforce_pod_group(self, info: Info, job: TrainJob) -> None:
        """Change `info` as the policy wants."""


@runtime_checkable
class EnforcePodSpec(Protocol):
    """Changes pods for concerns outside of both policies."""

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
        """Return complete objects; owner references and namespace are added by the framework where they are missing."""


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
        """Return what is wrong with `job`, and what to warn of; `old` is the stored object when it is an update.

        `info` is the runtime with the patches of the TrainJob, before any plugin ran: its number of nodes is not yet
        that of `job.spec.trainer.num_nodes`, which counts if it is set: `node_count(info, job)` tells it.

        One error is enough to refuse the TrainJob. Warnings are shown to its author in any case.
        """


@runtime_checkable
class Status(Protocol):
    """Reads the state of the workload that this plugin builds."""

    def status(self, job: TrainJob, listers: Listers) -> StatusReport | None:
        """Return what the workload says; None when it has none of this plugin: then the next one is asked."""
