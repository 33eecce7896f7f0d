"""The causes: every reason that is ever given for a job that does not start, does not finish or has failed.

The names are read by machines (JSON, the status of TrainJobs, metrics, history): they are not renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Question(StrEnum):
    """What somebody asks of a job."""

    START = "start"
    """Why does it not start?"""

    FINISH = "finish"
    """It has started; why does it not go on, or not end?"""

    FAILED = "failed"
    """Why has it failed?"""


class Cause(StrEnum):
    """One reason."""

    RUNTIME_MISSING = "RuntimeMissing"
    REFUSED = "Refused"
    PLUGIN_FAILED = "PluginFailed"
    SUSPENDED = "Suspended"
    QUOTA_EXCEEDED = "QuotaExceeded"
    GANG_INCOMPLETE = "GangIncomplete"
    UNSCHEDULABLE = "Unschedulable"
    VOLUME_PENDING = "VolumePending"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    CONTAINER_FAILED = "ContainerFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    INIT_CONTAINER_FAILED = "InitContainerFailed"
    NAME_RESOLUTION_FAILED = "NameResolutionFailed"
    RENDEZVOUS_TIMEOUT = "RendezvousTimeout"
    COLLECTIVE_TIMEOUT = "CollectiveTimeout"
    WORLD_SIZE_MISMATCH = "WorldSizeMismatch"
    NO_PROGRESS = "NoProgress"
    LOG_RULE_BROKEN = "LogRuleBroken"
    SIDECAR_RUNNING = "SidecarRunning"
    JOBSET_CONTROLLER_ABSENT = "JobSetControllerAbsent"
    MANAGER_ABSENT = "ManagerAbsent"
    ANOTHER_MANAGER_LEADS = "AnotherManagerLeads"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    TIME_TO_LIVE_EXPIRED = "TimeToLiveExpired"
    UNKNOWN = "Unknown"

    @property
    def summary(self) -> str:
        """What it is, in a few words that begin small: they stand behind the name."""
        return TEXTS[self].summary

    @property
    def questions(self) -> frozenset[Question]:
        """Which questions it can be the answer to."""
        return TEXTS[self].questions

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do, for whoever knows no more of the case than the cause; a finding mostly knows better."""
        return TEXTS[self].advice


@dataclass(frozen=True, slots=True)
class CauseText:
    """What is told of a cause."""

    summary: str
    questions: frozenset[Question]
    advice: tuple[str, ...]


_FAILED: Final = frozenset({Question.FAILED})
_NOT_DONE: Final = frozenset({Question.START, Question.FINISH})
_ENDS_BADLY: Final = frozenset({Question.FINISH, Question.FAILED})
_ANY: Final = frozenset(Question)

TEXTS: Final[Mapping[Cause, CauseText]] = {
    Cause.RUNTIME_MISSING: CauseText(
        "the runtime that it names does not exist, or may not be read",
        frozenset({Question.START, Question.FAILED}),
        ("see which runtimes there are: trainmaster runtimes list", "create the runtime, or name another one"),
    ),
    Cause.REFUSED: CauseText(
        "the API server, or a plugin of the manager, refuses the job or an object that it is made of",
        _ANY,
        ("correct what the message names; the job is tried again by itself",),
    ),
    Cause.PLUGIN_FAILED: CauseText(
        "a plugin of the manager failed",
        _ANY,
        ("ask whoever runs the manager: its log has the traceback of the plugin",),
    ),
    Cause.SUSPENDED: CauseText(
        "it is suspended",
        _NOT_DONE,
        ("resume it: trainmaster resume JOB",),
    ),
    Cause.QUOTA_EXCEEDED: CauseText(
        "a quota or a queue has no room for it",
        _NOT_DONE,
        ("wait until others end, ask for less, or ask for a larger quota",),
    ),
    Cause.GANG_INCOMPLETE: CauseText(
        "it starts only as a whole, and not all of its pods can start",
        _NOT_DONE,
        ("see why the pods that are missing do not start",),
    ),
    Cause.UNSCHEDULABLE: CauseText(
        "no node can take a pod of it",
        _NOT_DONE,
        ("ask for less, select other nodes, tolerate their taints, or add nodes",),
    ),
    Cause.VOLUME_PENDING: CauseText(
        "a volume of it is not there",
        _NOT_DONE,
        ("see the claim and its events: kubectl describe pvc",),
    ),
    Cause.IMAGE_PULL_FAILED: CauseText(
        "an image cannot be pulled",
        _NOT_DONE,
        ("correct the name of the image, or give the pods a pull secret",),
    ),
    Cause.CONTAINER_CONFIG_ERROR: CauseText(
        "a container cannot be created as it is written",
        _NOT_DONE,
        ("create the Secret or ConfigMap that is missing, or correct what refers to it",),
    ),
    Cause.CONTAINER_FAILED: CauseText(
        "a container ended with an error",
        _ANY,
        ("read its log: trainmaster logs JOB",),
    ),
    Cause.OUT_OF_MEMORY: CauseText(
        "a container used more memory than it may",
        _ANY,
        ("raise its limit of memory, or use less: smaller batches, fewer workers that load data",),
    ),
    Cause.EVICTED: CauseText(
        "a node, or somebody, evicted a pod of it",
        _ENDS_BADLY,
        ("ask for what it really uses, so that the node is not overbooked",),
    ),
    Cause.PREEMPTED: CauseText(
        "a pod of it made room for one of a higher priority",
        _ENDS_BADLY,
        ("give it a higher priority, or let it be restarted when there is room",),
    ),
    Cause.NODE_LOST: CauseText(
        "a node on which it ran is gone or does not answer",
        _ENDS_BADLY,
        ("see the node: kubectl describe node; save checkpoints, so that a restart loses little",),
    ),
    Cause.DEADLINE_EXCEEDED: CauseText(
        "it took longer than its deadline allows",
        _FAILED,
        ("raise activeDeadlineSeconds, or find out what took so long",),
    ),
    Cause.INIT_CONTAINER_FAILED: CauseText(
        "an init container, or an initializer, failed or does not end",
        _ANY,
        ("read its log: trainmaster logs JOB",),
    ),
    Cause.NAME_RESOLUTION_FAILED: CauseText(
        "a rank cannot resolve a name",
        _ANY,
        ("see whether the headless Service is there and whether the cluster's DNS answers",),
    ),
    Cause.RENDEZVOUS_TIMEOUT: CauseText(
        "the ranks did not find each other in time",
        _ANY,
        ("see why a rank started late or not at all, and whether a network policy keeps ranks apart",),
    ),
    Cause.COLLECTIVE_TIMEOUT: CauseText(
        "a rank waited in vain for others in a collective operation",
        _ANY,
        ("see which rank did not take part: trainmaster logs JOB --all",),
    ),
    Cause.WORLD_SIZE_MISMATCH: CauseText(
        "the ranks disagree on how many they are, or fewer train than were asked for",
        _ANY,
        ("let nothing but the runtime set the number of nodes and processes",),
    ),
    Cause.NO_PROGRESS: CauseText(
        "it stood still for longer than its resilience policy allows",
        _FAILED,
        ("if it hangs again, see where its processes are: trainmaster stack JOB",),
    ),
    Cause.LOG_RULE_BROKEN: CauseText(
        "its log broke a rule of its resilience policy",
        _FAILED,
        ("see what the program wrote before that: trainmaster logs JOB",),
    ),
    Cause.SIDECAR_RUNNING: CauseText(
        "the container that trains has ended, and another one of its pod goes on",
        frozenset({Question.FINISH}),
        ("make it a native sidecar, or keep it from being injected into the pods of the job",),
    ),
    Cause.JOBSET_CONTROLLER_ABSENT: CauseText(
        "nobody makes Jobs of its JobSet",
        _ANY,
        ("install or mend the JobSet controller: trainmaster doctor says what is wrong",),
    ),
    Cause.MANAGER_ABSENT: CauseText(
        "no manager of TrainJobs is at work",
        _ANY,
        ("install or mend the manager: trainmaster doctor says what is wrong",),
    ),
    Cause.ANOTHER_MANAGER_LEADS: CauseText(
        "it is another manager's to do, or another manager is at work",
        _NOT_DONE,
        ("see who manages it: spec.managedBy, and the holder of the manager's lease",),
    ),
    Cause.BACKOFF_LIMIT_EXCEEDED: CauseText(
        "it was restarted as often as it may be",
        _FAILED,
        ("see why it failed each time; then raise the limit of restarts if that may happen",),
    ),
    Cause.TIME_TO_LIVE_EXPIRED: CauseText(
        "it had ended, and was deleted when its time to live was over",
        _ANY,
        ("raise ttlSecondsAfterFinished, or let the manager record a history",),
    ),
    Cause.UNKNOWN: CauseText(
        "nothing that was looked at tells why",
        _ANY,
        ("see its pods and events: kubectl describe",),
    ),
}
