"""Write the tables of docs/metrics.md: every family of the registry, its labels and how many series it may have.

    python hack/generate_metrics.py [--check]

Only what stands between the two markers of the page is written. The program fails if a family has a label that is not
described here, or if one is described that no family has.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, get_args

import generator
from trainmaster.controller.certificates.webhook_names import CONFIGURATIONS
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.state import State
from trainmaster.controller.job_metrics import jobs_by_state
from trainmaster.controller.job_metrics.job_state import REASONS
from trainmaster.controller.job_metrics.trainjob_facts import EXIT_CLASSES, WITH_EXIT_CLASS
from trainmaster.controller.resilience.goodput import KINDS
from trainmaster.metrics import (
    cache,
    certificates,
    controller,
    plugins,
    queue,
    resilience,
    rest_client,
    statusserver,
    trainjobs,
)
from trainmaster.metrics.families import Family, families
from trainmaster.runtime.framework.signatures import PHASES

TARGET: Final = Path(__file__).resolve().parents[1] / "docs/metrics.md"
BEGIN: Final = "<!-- Written by hack/generate_metrics.py from the registry; edit that. -->\n"


class Label(NamedTuple):
    """What a label tells."""

    families: str
    """The prefix that the names of its families begin with."""

    name: str
    meaning: str
    """Empty for what its name or another label tells."""

    values: Sequence[str] = ()
    """All of them, where they are few and always the same."""

    most: int | str = 0
    """How many there are at most: a number, or what they are as many as; 0: as many as `values`."""

    @property
    def bound(self) -> int | str:
        """How many values there are at most."""
        return self.most or len(self.values)


_RUNTIMES: Final = trainjobs.MOST_RUNTIMES + 1
_ACCELERATORS: Final = trainjobs.MOST_ACCELERATORS + 1
_JOB_CODES: Final = ("200", "201", "401", "403", "404", "409", "429", "500", "503", rest_client.NO_ANSWER)
_REASONS: Final = tuple(dict.fromkeys(reason for reasons in REASONS.values() for reason in reasons))
_MANY: Final = len(Cause) // 2
"""So many causes are named by those that are left out."""

LABELS: Final = (
    Label(
        "trainmaster_trainjob_node", "node",
        f"The name of the node, for the first {trainjobs.MOST_NODES} on which a job failed; else `{trainjobs.OTHER}`",
        most=trainjobs.MOST_NODES + 1,
    ),
    Label(
        "trainmaster_trainjob", "runtime",
        f"The name of the runtime, for the first {trainjobs.MOST_RUNTIMES} of which something was built since the "
        f"manager started; `{trainjobs.OTHER}` for all others, and for jobs of which nothing was built. A "
        "TrainingRuntime and a ClusterTrainingRuntime of one name are counted together",
        most=_RUNTIMES,
    ),
    Label("trainmaster_trainjobs", "state", "As `trainmaster explain` calls it", tuple(REASONS)),
    Label(
        "trainmaster_trainjobs", "reason",
        "The reason of the condition that tells why: `Blocked`, `Waiting` or `ContainerFailed` of what has not ended, "
        "the first of these that holds; `Failed` of what has",
        _REASONS,
    ),
    Label(
        "trainmaster_trainjob_", "state",
        "`Running`: pods of Jobs that are ready, those that have ended well included until all of their Job have; "
        "`Suspended`: pods of suspended TrainJobs; `Waiting`: the rest",
        (State.RUNNING, State.SUSPENDED, State.WAITING),
    ),
    Label(
        "trainmaster_trainjob_", "resource",
        f"The name of the extended resource, for the first {trainjobs.MOST_ACCELERATORS}; `{trainjobs.OTHER}` for the "
        "rest. Devices that are claimed (DRA) are not counted",
        most=_ACCELERATORS,
    ),
    Label(
        "trainmaster_trainjob_", "kind", "On what it was spent; [as `status.resilience.goodput`](guides/resilience.md)",
        tuple(KINDS),
    ),
    Label(
        "trainmaster_trainjob_", "queue",
        f"The queue of Kueue, for the first {trainjobs.MOST_QUEUES}; `{trainjobs.OTHER}` for the rest; empty without",
        most=trainjobs.MOST_QUEUES + 1,
    ),
    Label("trainmaster_trainjob_", "result", "How it ended", get_args(trainjobs.Result)),
    Label("trainmaster_trainjob_", "cause", "As `trainmaster explain` calls it", tuple(Cause)),
    Label(
        "trainmaster_trainjob_", "exit_class",
        f"What kind of exit code the first container that failed had; empty for other causes than "
        f"{' and '.join(f'`{each}`' for each in sorted(WITH_EXIT_CLASS))}",
        EXIT_CLASSES,
    ),
    Label(
        "trainmaster_policy_", "reason", "[What](guides/resilience.md#status-and-events) it did",
        get_args(resilience.ViolationReason),
    ),
    Label("trainmaster_log_", "result", "`cut`: more was there than is read at once", get_args(resilience.ReadResult)),
    Label("trainmaster_log_rule_", "trainjob_namespace", "", most="namespaces"),
    Label("trainmaster_log_rule_", "trainjob", "", most="TrainJobs"),
    Label("trainmaster_log_rule_", "rule", "", most="rules"),
    Label("training_operator_", "job_namespace", "", most="namespaces"),
    Label("training_operator_", "framework", "The kind of the job, for instance `pytorch`", most="kinds"),
    Label("trainmaster_v1_", "framework", "", most="kinds"),
    Label("trainmaster_v1_", "state", "As `trainmaster explain` calls it", jobs_by_state.STATES),
    Label("trainmaster_plugin_", "plugin", "", most="plugins"),
    Label("trainmaster_plugin_", "phase", "What it was called for", tuple(PHASES)),
    Label("trainmaster_plugin_", "result", "How the call ended", get_args(plugins.CallResult)),
    Label("trainmaster_plugin_", "reason", "Why it was left out", ("PluginFailed", "PluginQuarantined")),
    Label(
        "trainmaster_informer_", "resource",
        "What the cache holds: the plural of the kind, with what is selected of it if that is not all", most="caches",
    ),
    Label("trainmaster_informer_", "method", "How the snapshot was taken", get_args(cache.SnapshotMethod)),
    Label("trainmaster_informer_", "cause", "Why the watch ended", get_args(cache.RestartCause)),
    Label("controller_runtime_", "controller", "", most="controllers"),
    Label("controller_runtime_", "result", "How the reconcile ended", get_args(controller.Result)),
    Label("controller_runtime_webhook_", "webhook", "The path of the webhook", most="webhooks"),
    Label("controller_runtime_webhook_", "code", "The HTTP status code", ("200", "500")),
    Label("leader_election_", "name", "The Lease", most=1),
    Label("workqueue_", "controller", "", most="controllers"),
    Label("workqueue_", "name", "", most=1),
    Label(
        "workqueue_", "priority",
        f"0, 100 for changes, -100 for what can wait; beyond 25 of them `{queue.TOO_MANY_PRIORITIES}`",
        most=queue.PRIORITIES_AT_MOST + 1,
    ),
    Label("rest_client_", "host", "Where the API server is", most=1),
    Label("rest_client_", "method", "The HTTP method", rest_client.METHODS),
    Label("rest_client_", "verb", "", rest_client.METHODS),
    Label(
        "rest_client_", "code", f"The HTTP status code, or `{rest_client.NO_ANSWER}`; seldom another one than these",
        _JOB_CODES,
    ),
    Label("trainmaster_client_", "pool", "What the connections are for", ("request", "watch")),
    Label("trainmaster_progress_", "code", "The HTTP status code", tuple(map(str, statusserver.USUAL_CODES))),
    Label("trainmaster_progress_", "outcome", "What it said", get_args(statusserver.ReviewOutcome)),
    Label(
        "trainmaster_webhook_configuration_", "configuration", "Kind and name", tuple(map(str, CONFIGURATIONS)),
    ),
    Label(
        "trainmaster_certificate_", "certificate", "That which is served, or the authority that signs it",
        get_args(certificates.Certificate),
    ),
    Label("trainmaster_tracing_", "result", "What became of them", ("exported", "failed", "dropped")),
    Label("trainmaster_gc_", "generation", "Of the garbage collector", ("0", "1", "2")),
    Label("python_gc_", "generation", "", ("0", "1", "2")),
    *(
        Label("python_info", name, "", most=1)
        for name in ("version", "implementation", "major", "minor", "patchlevel")
    ),
)  # fmt: skip
"""All labels; of several that fit a family, the one with the longest prefix counts."""

TOGETHER: Final[Mapping[frozenset[str], int]] = {
    frozenset({"state", "reason"}): sum(map(len, REASONS.values())),
    frozenset({"trainjob_namespace", "trainjob", "rule"}): resilience.MOST_NUMBERS,
    frozenset({"cause", "exit_class"}): len(Cause) + len(WITH_EXIT_CLASS) * (len(EXIT_CLASSES) - 1),
}
"""Labels of which not every combination occurs, with how many do."""

SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "TrainJobs": ("trainmaster_trainjob",),
    "Jobs of kubeflow.org/v1": ("training_operator_", "trainmaster_v1_"),
    "Controllers and their queues": ("controller_runtime_", "workqueue_", "leader_election_"),
    "Plugins": ("trainmaster_plugin_",),
    "Caches": ("trainmaster_informer_",),
    "Requests to the API server": ("rest_client_", "trainmaster_client_"),
    "Webhooks and certificates": ("controller_runtime_webhook_", "controller_runtime_conversion_", "certwatcher_",
                                  "trainmaster_certificate_", "trainmaster_webhook_configuration_"),
    "Reports of progress": ("trainmaster_progress_",),
    "Resilience policies": ("trainmaster_log_", "trainmaster_policy_"),
    "History": ("trainmaster_history_",),
    "The process": ("trainmaster_config_", "trainmaster_event_loop_", "trainmaster_asyncio_", "trainmaster_tracing_",
                    "trainmaster_gc_", "process_", "python_"),
}  # fmt: skip
"""Which families stand together, by the prefixes of their names; the longest prefix counts."""


def label_of(family: Family, name: str) -> Label:
    """Return what a label of a family tells.

    Raises:
        SystemExit: It is not described.
    """
    fitting = [each for each in LABELS if each.name == name and family.name.startswith(each.families)]
    if not fitting:
        raise SystemExit(f"the label {name!r} of {family.name} is not described: add it to LABELS in {__file__}")
    return max(fitting, key=lambda each: len(each.families))


def bound_of(family: Family) -> tuple[int, list[str]]:
    """Return how many series a family has at most: a number, and what that is to be multiplied with."""
    factors: list[int | str] = [family.samples]
    labels = set(family.labels)
    for together, combinations in TOGETHER.items():
        if together <= labels:
            factors.append(combinations)
            labels -= together
    factors += [label_of(family, name).bound for name in family.labels if name in labels]
    numbers = [each for each in factors if isinstance(each, int)]
    return math.prod(numbers), [each for each in factors if isinstance(each, str)]


def section_of(family: Family) -> str:
    """Return the section in which a family stands.

    Raises:
        SystemExit: There is none.
    """
    fitting = [
        (len(prefix), title)
        for title, prefixes in SECTIONS.items()
        for prefix in prefixes
        if family.name.startswith(prefix)
    ]
    if not fitting:
        raise SystemExit(f"{family.name} belongs to no section: add its prefix to SECTIONS in {__file__}")
    return max(fitting)[1]


def render() -> str:
    """Write what stands between the markers."""
    every = families()
    used = [label_of(family, name) for family in every for name in family.labels]
    if unused := [f"{each.name} of {each.families}" for each in LABELS if each not in used]:
        raise SystemExit(f"labels that no family has: {', '.join(unused)}; remove them from LABELS in {__file__}")
    lines: list[str] = []
    for title in SECTIONS:
        lines += _section(title, [each for each in every if section_of(each) == title])
    return "\n".join(lines)


def _section(title: str, of_it: Sequence[Family]) -> Iterator[str]:
    yield from (f"## {title}", "")
    for family in of_it:
        number, others = bound_of(family)
        bound = " \N{MULTIPLICATION SIGN} ".join([f"{number:,}", *others])
        labels = f" by {', '.join(f'`{name}`' for name in family.labels)}" if family.labels else ""
        at_most = f"; {bound}" if number > 1 else ""
        yield f"- `{family.name}` ({family.type}{labels}{at_most}): {family.meaning}"
    if title == "TrainJobs":
        total = sum(bound_of(family)[0] for family in of_it)
        yield from ("", f"All of them together: {total:,} series at most.")
    labels_of_it = [
        each
        for each in LABELS
        if each.meaning and any(each == label_of(family, name) for family in of_it for name in family.labels)
    ]
    if labels_of_it:
        yield from ("", "Labels:", "")
        names = [label.name for label in labels_of_it]
        for label in labels_of_it:
            of = f" of `{label.families}*`" if names.count(label.name) > 1 else ""
            yield f"- `{label.name}`{of}: {label.meaning}{_values_of(label)}"
    if title == "TrainJobs":
        yield from ("", "Reasons by state, often empty; all others have none:", "")
        for state, (_, *reasons) in REASONS.items():
            if reasons:
                yield f"- `{state}`: {_values(reasons)}"
    yield ""


def _values_of(label: Label) -> str:
    """Return what follows the meaning of a label: its values, where they are always the same and not in it."""
    if label.values == _REASONS or all(f"`{value}`" in label.meaning for value in label.values):
        return ""
    return f": {_values(label.values)}"


def _values(values: Sequence[str]) -> str:
    shown = [f"`{each}`" if each else "(empty)" for each in values]
    if len(set(Cause) & set(values)) > _MANY:
        absent = [f"`{each}`" for each in Cause if each not in values]
        causes = "all [causes](guides/explain.md#the-causes)" + (f" except {', '.join(absent)}" if absent else "")
        shown = [*(text for each, text in zip(values, shown, strict=True) if each not in set(Cause)), causes]
    return ", ".join(shown)


def main() -> int:
    """Run the command."""
    arguments = generator.parser(__doc__).parse_args()
    return generator.write({TARGET: generator.spliced(TARGET, BEGIN, f"\n{render()}")}, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
