"""The interface of job kinds: what a kind of training job has of its own.

A kind is a class that is registered under the entry-point group `trainmaster.jobs`, by the lower case of its name (for
instance `pytorchjob`), and that is derived from `JobKind`. It is called without arguments, or with its options from the
configuration if it has an `options_model`. Everything that is not told here (pods, services, gangs, restarts,
suspension, limits, clean-up, conditions, events, metrics) is the same for all kinds, and is no business of theirs.

Attributes say what is special of a kind where that is a name or a number; the methods have sensible results for a kind
that does without them. All are synchronous and pure: they decide by what they are given, and do no I/O. What they are
given is shared, but for the pod of `set_cluster_spec`, which is theirs to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final

from trainmaster.runtime.api.meta import ApiModel, ObjectMeta
from trainmaster.runtime.field_errors import FieldError, FieldWarning, aggregate
from trainmaster.runtime.jobs.constants import (
    FAILED,
    GROUP,
    NEVER,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    VERSION,
    WORKER,
)
from trainmaster.runtime.jobs.types import ReplicaSpec, ReplicaStatus, RunPolicy
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.resilience import BuiltPolicy

MAX_REPLICAS: Final = 10_000
"""Of a job, if the configuration says nothing else: the manager goes through all of them in each of its looks."""


class JobKindOptions(ApiModel):
    """Base of the options that a kind takes from the configuration, `trainingOperator.options.<kind in lower case>`.

    What is wrong with a value a validator of pydantic says, by a `ValueError`: it is shown behind the option's path.
    """


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """A condition that holds from now on, for instance Running."""

    type: str
    message: str
    reason: str = ""
    """By default the name of the kind and the type, for instance `PyTorchJobRunning`."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A right that Roles of `JobKind.build` give away: who gives a right must have it (RBAC's rule of escalation)."""

    api_version: str
    kind: str
    plural: str
    verbs: tuple[str, ...]
    subresource: str = ""
    """For instance `exec`; empty for the objects themselves."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of any kind, as everything that decides about it sees it: defaulted, its spec read into types.

    Attributes:
        kind: Its kind.
        metadata: Its metadata.
        run_policy: Its run policy.
        replica_specs: Its replicas by type, in the order of the kind's types; others are last.
        spec: Its spec but for the replicas, defaulted: for the fields that only its kind has.
        status: Its status as stored.
        raw: The object as stored.
        resilience: What its pods are built for, if it has a valid resilience policy.
    """

    kind: JobKind
    metadata: ObjectMeta
    run_policy: RunPolicy
    replica_specs: Mapping[str, ReplicaSpec]
    spec: JsonObject
    status: JsonObject
    raw: JsonObject
    resilience: BuiltPolicy | None = None

    @property
    def restarts_together(self) -> bool:
        """Whether all pods are made anew after a failure, by its resilience policy; else each by its restart policy."""
        return self.resilience is not None and self.resilience.policy.counts_failures

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.metadata.namespace

    @property
    def total_replicas(self) -> int:
        """How many pods it has when all are there; less than none of a type are none."""
        return sum(max(each.replicas, 0) for each in self.replica_specs.values())

    def replicas(self, replica_type: str) -> int:
        """Return how many replicas of a type it wants; 0 if it has none of them."""
        spec = self.replica_specs.get(replica_type)
        return spec.replicas if spec is not None else 0

    def condition(self, condition_type: str) -> JsonObject | None:
        """Return a condition of its status."""
        conditions = self.status.get("conditions") or []
        return next((each for each in conditions if each.get("type") == condition_type), None)

    def is_true(self, condition_type: str) -> bool:
        """Tell whether a condition of its status holds."""
        found = self.condition(condition_type)
        return found is not None and found.get("status") == "True"


class KindFailed(Exception):
    """A method of a kind would have ended the process."""


@contextmanager
def contained() -> Iterator[None]:
    """Have what methods of a kind raise in the block be a failure of the kind, and no reason to end the process.

    Raises:
        KindFailed: In place of `SystemExit`, `KeyboardInterrupt` and `GeneratorExit`.
    """
    try:
        yield
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise KindFailed(f"{type(error).__name__}: {error}") from error


class JobKind:
    """Base of all kinds of training jobs."""

    kind: ClassVar[str]
    """For instance `PyTorchJob`."""

    plural: ClassVar[str]
    """The resource, for instance `pytorchjobs`."""

    group: ClassVar[str] = GROUP
    version: ClassVar[str] = VERSION

    framework: ClassVar[str]
    """The label of metrics, for instance `pytorch`."""

    replica_specs_field: ClassVar[str]
    """The field of the spec that maps replica types to replicas, for instance `pytorchReplicaSpecs`."""

    replica_types: ClassVar[tuple[str, ...]]
    """The types that there are, in the order in which they are worked on."""

    leading_types: ClassVar[tuple[str, ...]]
    """The types that say how the job fares: the first of them that a job has."""

    single_types: ClassVar[tuple[str, ...]] = ()
    """The types of which there is one replica: names and labels of its pod have no index, which is 0."""

    container_name: ClassVar[str]
    """The container that trains."""

    any_container: ClassVar[bool] = False
    """Whether the first container trains where none has the name `container_name`; otherwise one has to have it."""

    other_types: ClassVar[bool] = False
    """Whether replicas of types beyond `replica_types` are admitted; they have no part in how the job fares."""

    own_rules: ClassVar[bool] = False
    """Whether `validate` has all the rules of names, types and containers; otherwise they are those of all kinds."""

    port_name: ClassVar[str] = ""
    """The name of the port that the container that trains has at least; empty: none is needed."""

    port: ClassVar[int] = 0

    default_restart_policy: ClassVar[str] = NEVER

    has_services: bool = True
    """Whether each pod has a headless Service of its name; it may depend on the options."""

    keeps_objects: ClassVar[bool] = False
    """Whether what `build` returned stays until the job is deleted, so that nobody needs the right to delete it;
    otherwise it goes when it is not built any more, and when the job is suspended or has finished.
    """

    scale_type: ClassVar[str] = ""
    """The type whose replicas `kubectl scale` sets; empty: the kind has no scale subresource."""

    options_model: ClassVar[type[JobKindOptions]] = JobKindOptions
    """The options that it takes from the configuration."""

    max_replicas: int = MAX_REPLICAS
    """How many pods a job may have, from the configuration."""

    def __init__(self, options: JobKindOptions | None = None, *, cluster_domain: str = "") -> None:
        self.options = options if options is not None else self.options_model()
        self.cluster_domain = cluster_domain
        """The domain of the cluster, for names that are to be complete; empty: they end in `.svc`."""

    @property
    def api_version(self) -> str:
        """Group and version."""
        return f"{self.group}/{self.version}"

    @property
    def controller_name(self) -> str:
        """The name of its controller: a label of pods, the source of events."""
        return f"{self.kind.lower()}-controller"

    def default_replicas(self, replica_type: str) -> int:  # noqa: ARG002 - for kinds that tell them apart
        """Return how many replicas of a type there are if nobody says."""
        return 1

    def run_policy(self, given: RunPolicy, spec: JsonObject) -> RunPolicy:  # noqa: ARG002 - for kinds with such fields
        """Return the run policy of a job, where other fields of its spec say something of it too."""
        return given

    def default(self, job: Job) -> None:
        """Fill in what `job.spec` leaves out and only this kind has; replicas and run policy have been dealt with.

        `job.spec`, which is to be changed, has all fields but for the replica map.

        Raises:
            ApiTypeError: A field of this kind has the wrong type.
        """

    def validate(self, job: Job, old: Job | None) -> Iterable[FieldError | FieldWarning]:  # noqa: ARG002
        """Return what is wrong with a job beyond what is wrong with jobs of all kinds, and what to warn of.

        Called at admission, with the stored object as `old` on an update; and again before a job is worked on, for
        those that nobody admitted. `job` is defaulted, `job.raw` is not.
        """
        return ()

    def lacks_container(self) -> str:
        """Return what is said of replicas without the container that trains."""
        return f"must have at least one container with name {self.container_name}"

    def refusal(self, errors: Sequence[FieldError]) -> str:
        """Return why an invalid job is not worked on: what its event `<kind>FailedValidation` gives as the reason."""
        return aggregate(errors)

    def pod_name(self, job: Job, replica_type: str, index: int) -> str:
        """Return the name of a pod, and of its service."""
        place = "" if replica_type in self.single_types else f"-{index}"
        return f"{job.name}-{replica_type.lower()}{place}".replace("/", "-")

    def is_master_role(self, job: Job, replica_type: str, index: int) -> bool:
        """Tell whether a pod has the role `master`, by which users find its log.

        By default those of the leading type have it, of workers the first.
        """
        return replica_type == self.leading_type(job) and (replica_type != WORKER or index == 0)

    def set_cluster_spec(self, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
        """Tell a pod how it finds the others: environment, init containers, volumes.

        Args:
            pod: The pod, complete but for this; to be changed.
        """

    def build(self, job: Job, pods: Sequence[JsonObject], listers: Listers) -> Iterable[JsonObject]:  # noqa: ARG002
        """Return the objects that a job has besides pods, services and a PodGroup; those of `watches` only.

        They exist, as they are returned, while the job is neither suspended nor finished; they are created in their
        order, before its pods. Namespace and owner reference are added where they are missing. An object with an empty
        list of `ownerReferences` is nobody's: it is created if there is none of its name, and outlives the job.
        Objects of kinds whose watch has `creates_only` are created and never changed.

        Args:
            listers: The objects of `watches` as they are.
        """
        return ()

    def watches(self) -> Iterable[Watch]:
        """Return the kinds of what `build` returns."""
        return ()

    def grants(self) -> Iterable[Grant]:
        """Return the rights that what `build` returns gives to pods."""
        return ()

    def leading_type(self, job: Job) -> str | None:
        """Return the type that says how the job fares: the first of `leading_types` of which there are any."""
        present = [each for each in self.leading_types if each in job.replica_specs]
        return next((each for each in present if job.replicas(each) > 0), present[0] if present else None)

    def replica_statuses(self, job: Job, replicas: Mapping[str, ReplicaStatus]) -> Mapping[str, ReplicaStatus]:  # noqa: ARG002
        """Return the replicas of each type by state, as they count; by default as they are."""
        return replicas

    def has_succeeded(
        self,
        job: Job,
        replicas: Mapping[str, ReplicaStatus],
        pods: Mapping[str, Sequence[JsonObject]],  # noqa: ARG002 - for kinds that look at single pods
    ) -> bool:
        """Tell whether a job has succeeded; by default it has when all replicas of its leading type have."""
        leader = self.leading_type(job)
        return leader is not None and 0 < job.replicas(leader) <= replicas[leader].succeeded

    def update_job_status(
        self,
        job: Job,
        replicas: Mapping[str, ReplicaStatus],
        pods: Mapping[str, Sequence[JsonObject]],
    ) -> Iterator[ConditionUpdate]:
        """Return which conditions hold, in the order in which they came about; the last one is the state of the job.

        By default: the leading type says whether the job runs and has succeeded, and a failed replica that is not
        replaced by its restart policy fails it. What fails by its exit code does so before, whatever comes here.

        Args:
            replicas: The replicas of each type by state, as `replica_statuses` returned them.
        """
        if self.has_succeeded(job, replicas, pods):
            yield ConditionUpdate(SUCCEEDED, self.succeeded_message(job))
            return
        leader = self.leading_type(job)
        if leader is not None and replicas[leader].active:
            yield ConditionUpdate(RUNNING, self.running_message(job))
        for replica_type, spec in job.replica_specs.items():
            status = replicas[replica_type]
            if (
                replica_type in self.replica_types
                and status.failed
                and spec.replicas > status.succeeded + status.active
            ):
                yield self.failed_replicas(job, replica_type, spec, status)

    def failed_replicas(self, job: Job, replica_type: str, spec: ReplicaSpec, status: ReplicaStatus) -> ConditionUpdate:
        """Return what failed replicas of a type mean for the job, by their restart policy."""
        why = f"because {status.failed} {replica_type} replica(s) failed."
        if spec.restart_policy == NEVER:
            return ConditionUpdate(FAILED, f"{self.kind} {job.name} is failed {why}")
        return ConditionUpdate(RESTARTING, f"{self.kind} {job.name} is restarting {why}")

    def running_message(self, job: Job) -> str:
        """Return the message of the condition Running."""
        return f"{self.kind} {self._called(job)} is running."

    def succeeded_message(self, job: Job) -> str:
        """Return the message of the condition Succeeded."""
        completed = "successfully completed." if self._is_qualified(job) else "is successfully completed."
        return f"{self.kind} {self._called(job)} {completed}"

    def _is_qualified(self, job: Job) -> bool:
        """Whether messages name the namespace: the original's do where no master leads."""
        return self.leading_type(job) == WORKER

    def _called(self, job: Job) -> str:
        return f"{job.namespace}/{job.name}" if self._is_qualified(job) else job.name
