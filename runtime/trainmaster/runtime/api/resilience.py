"""What becomes of a job that fails, loses a node or stands still: the resilience policy, and what its status keeps.

An extension of Trainmaster; the original has nothing of it. Whatever a policy leaves out stays off.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from trainmaster.runtime.api.meta import DATE_TIME, NAME, ApiModel, NullIsDefault, Schema

_DURATION_SCHEMA: Final = Schema(maxLength=32, pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$")

IGNORE: Final = "Ignore"
COUNT: Final = "Count"
RESTART: Final = "Restart"
FAIL: Final = "Fail"
EVENT: Final = "Event"
VERIFY: Final = "Verify"
WARN: Final = "Warn"
ALL: Final = "All"
FIRST: Final = "First"
_ACTIONS: Final = Schema(enum=[RESTART, FAIL, EVENT])


class ExitCodes(ApiModel):
    """Exit codes of the training container that mean something else than a failure that is charged."""

    fail: Annotated[list[int], NullIsDefault, Schema(list_type="set", maxItems=64)] = Field(default_factory=list)
    """Codes with which the job fails at once: starting it again would not help."""

    retry: Annotated[list[int], NullIsDefault, Schema(list_type="set", maxItems=64)] = Field(default_factory=list)
    """Codes with which the program asks to be started again. That is not charged."""


class NodesPolicy(ApiModel):
    """Nodes on which the job failed are avoided."""

    avoid_after: Annotated[int | None, Schema(minimum=1, maximum=100)] = None
    """How often the job has to fail first on a node until it is avoided."""

    for_: Annotated[str, NullIsDefault, _DURATION_SCHEMA, Field(alias="for")] = "1h"
    """How long it is avoided."""

    lost_after: Annotated[str | None, _DURATION_SCHEMA] = None
    """How long a node may be not ready until the pods of the job there are given up and removed; if absent, the
    cluster's own rules hold alone."""


class ProgressPolicy(ApiModel):
    """What happens if the training stands still.

    Progress is what the training reports to the status server, else what rules about its log find, else any new line
    that one of its nodes writes.
    """

    within: Annotated[str | None, _DURATION_SCHEMA] = None
    """How long there may be no progress."""

    start: Annotated[str | None, _DURATION_SCHEMA] = None
    """How long the training may take from the start of an attempt to its first progress."""

    action: Annotated[str, NullIsDefault, _ACTIONS] = RESTART
    """Restart the group (charged), Fail the job, or only tell by an Event."""


class LogRule(ApiModel):
    """What the training writes, or must not write, to its log.

    With neither `within` nor `every` the pattern must not appear.
    """

    name: Annotated[str, NAME, Schema(maxLength=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the rule, in conditions, events and metrics."""

    pattern: Annotated[str, Schema(minLength=1, maxLength=512)]
    """Regular expression that is searched for in each line. A group in it captures a number, which becomes a metric of
    the job, and progress when it changes."""

    within: Annotated[str | None, _DURATION_SCHEMA] = None
    """How long after the start of an attempt it has to appear."""

    every: Annotated[str | None, _DURATION_SCHEMA] = None
    """How soon after the last time it has to appear again, from the first time on."""

    from_: Annotated[str, NullIsDefault, Schema(enum=[FIRST, ALL]), Field(alias="from")] = FIRST
    """Whose log is read: of the First node, or of All."""

    action: Annotated[str, NullIsDefault, _ACTIONS] = EVENT
    """What is done when the rule is broken: Restart the group (charged), Fail the job, or only tell by an Event."""


class ResiliencePolicy(ApiModel):
    """What becomes of a job that fails, loses a node or stands still.

    What is absent stays as the original does it.
    """

    max_restarts: Annotated[int | None, Schema(minimum=0, maximum=999_999)] = None
    """How many failures may be followed by a restart of all pods; a failure is charged once, whoever fails with it."""

    restart_window: Annotated[str | None, _DURATION_SCHEMA] = None
    """Only restarts within this time count; if absent, all."""

    disruptions: Annotated[str | None, Schema(enum=[IGNORE, COUNT])] = None
    """Whether evictions, preemptions, drains and lost nodes are charged (Count), or not (Ignore, the default)."""

    exit_codes: ExitCodes | None = None

    nodes: NodesPolicy | None = None

    progress: ProgressPolicy | None = None

    logs: Annotated[list[LogRule] | None, Schema(keys=["name"], maxItems=16)] = None
    """Rules about the log."""

    world_size: Annotated[str | None, Schema(enum=[VERIFY, WARN, IGNORE])] = None
    """What happens if fewer processes train than were asked for: the job fails at once (Verify), or is warned of."""

    grace_period: Annotated[str | None, _DURATION_SCHEMA] = None
    """How long a pod may take to stop after SIGTERM, for instance to write a checkpoint."""

    @property
    def counts_failures(self) -> bool:
        """Whether it says when all pods are started anew after a failure."""
        return self.max_restarts is not None or self.disruptions is not None or self.exit_codes is not None


_SECONDS: Final = Schema(minimum=0, format="int64")


class Attempt(ApiModel):
    """One attempt of the training that has ended, or is about to."""

    __schema__: ClassVar[Schema] = Schema(description=None)

    number: Annotated[int, Schema(minimum=0)]
    """Counted from 0."""

    ended_at: Annotated[str | None, DATE_TIME] = None
    """When it ended."""

    reason: Annotated[str, NullIsDefault, Schema(required=True, minLength=1, maxLength=128)] = ""
    """Why: Failed, Disrupted, Retry or Unknown, or how the policy was broken, for instance NoProgress."""

    message: Annotated[str, NullIsDefault, Schema(maxLength=1024)] = ""
    """The same for people."""

    pod: Annotated[str, NullIsDefault, Schema(maxLength=253)] = ""
    """The pod that failed first, if that is known."""

    node: Annotated[str, NullIsDefault, Schema(maxLength=253)] = ""
    """The node of that pod."""

    charged: Annotated[bool, NullIsDefault] = False
    """Whether it counts towards maxRestarts."""


class ToldViolation(ApiModel):
    """How the present attempt breaks the policy where the action is Event."""

    __schema__: ClassVar[Schema] = Schema(description=None)

    attempt: Annotated[int, Schema(minimum=0)]
    """Its number."""

    reason: Annotated[str, NullIsDefault, Schema(required=True, minLength=1, maxLength=128)] = ""
    """NoProgress, LogRuleBroken or WorldSizeMismatch."""

    message: Annotated[str, NullIsDefault, Schema(maxLength=1024)] = ""
    """The same for people."""

    rule: Annotated[str, NullIsDefault, Schema(maxLength=63)] = ""
    """The log rule that is broken."""

    since: Annotated[str | None, DATE_TIME] = None
    """Since when there is no progress, until there is some again."""


class AvoidedNode(ApiModel):
    """A node on which the job does not run for a time."""

    __schema__: ClassVar[Schema] = Schema(description=None)

    name: Annotated[str, NAME]
    """Of the node."""

    until: Annotated[str, DATE_TIME]
    """When it may be used again."""


class Goodput(ApiModel):
    """What the time of a job was spent on, in seconds, up to the last change."""

    queued_seconds: Annotated[int, NullIsDefault, _SECONDS] = 0
    """Until its pods were there, and while it was suspended."""

    starting_seconds: Annotated[int, NullIsDefault, _SECONDS] = 0
    """From then until all pods ran."""

    productive_seconds: Annotated[int, NullIsDefault, _SECONDS] = 0
    """Training, but for what was lost of it."""

    lost_seconds: Annotated[int, NullIsDefault, _SECONDS] = 0
    """Training after the last checkpoint before a failure."""

    stalled_seconds: Annotated[int, NullIsDefault, _SECONDS] = 0
    """Without progress, before that was found."""

    restarting_seconds: Annotated[int, NullIsDefault, _SECONDS] = 0
    """From a failure until all pods ran again."""

    unsaved_seconds: Annotated[int, NullIsDefault, _SECONDS] = 0
    """How many of the productive ones, before `since`, no checkpoint holds yet: a failure makes them lost."""

    estimated: Annotated[bool, NullIsDefault] = False
    """Whether lost time was counted from the last progress, or all of an attempt, since no checkpoint was reported."""

    phase: Annotated[str, NullIsDefault, Schema(maxLength=32)] = ""
    """What the time since `since` is spent on: Queued, Starting, Productive, Stalled, Restarting; empty at the end."""

    since: Annotated[str | None, DATE_TIME] = None
    """Up to when time is counted."""


class WorldSize(ApiModel):
    """A number of nodes of an elastic job."""

    __schema__: ClassVar[Schema] = Schema(description=None)

    nodes: Annotated[int, Schema(minimum=1)]
    """How many the JobSet has."""

    since: Annotated[str, DATE_TIME]
    """When that was seen first."""


class ResilienceStatus(ApiModel):
    """What the policy remembers of a job."""

    charged_restarts: Annotated[int, NullIsDefault, Schema(minimum=0)] = 0
    """Failures that count towards maxRestarts, within its window."""

    attempts: Annotated[list[Attempt], NullIsDefault, Schema(list_type="atomic", maxItems=32)] = Field(
        default_factory=list
    )
    """The last ones that have ended."""

    violations: Annotated[list[ToldViolation], NullIsDefault, Schema(list_type="atomic", maxItems=18)] = Field(
        default_factory=list
    )
    """What the present attempt has done against the policy, as events tell."""

    avoided_nodes: Annotated[list[AvoidedNode], NullIsDefault, Schema(keys=["name"], maxItems=100)] = Field(
        default_factory=list
    )
    """Nodes on which the next attempt does not run."""

    job_set: Annotated[str, NullIsDefault, Schema(maxLength=64)] = ""
    """UID of the JobSet that the last attempts are of."""

    replaced_job_set: Annotated[str, NullIsDefault, Schema(maxLength=64)] = ""
    """UID of the JobSet in whose place a new one is made; empty when that is there."""

    world_sizes: Annotated[list[WorldSize], NullIsDefault, Schema(list_type="atomic", maxItems=32)] = Field(
        default_factory=list
    )
    """The last numbers of nodes of an elastic job."""

    nodes: Annotated[int | None, Schema(minimum=0)] = None
    """How many nodes the JobSet of an elastic job has, for `kubectl scale` and autoscalers."""

    selector: Annotated[str, NullIsDefault, Schema(maxLength=512)] = ""
    """Labels of the pods of these nodes, for autoscalers."""

    resizing: Annotated[int | None, Schema(minimum=1)] = None
    """For how many nodes the JobSet was asked in place; if it refuses, a new one is made."""

    goodput: Goodput | None = None

    @property
    def ended_attempts(self) -> int:
        """How many attempts have ended."""
        return self.attempts[-1].number + 1 if self.attempts else 0
