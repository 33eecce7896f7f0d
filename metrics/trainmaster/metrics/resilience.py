"""The families of resilience policies: what broke them, what was read of logs, and the numbers that rules capture.

The numbers alone name their job, for whoever asks for them by a rule. They are at most `MOST_NUMBERS`, and go with it.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Counter, Gauge

ReadResult: TypeAlias = Literal["read", "cut", "failed"]
"""What came of a read: the log to its end, a part after which others are skipped, or nothing."""

ViolationReason: TypeAlias = Literal["NoProgress", "LogRuleBroken", "WorldSizeMismatch"]
"""How a policy was broken."""

MOST_NUMBERS: Final = 1000

NUMBERS: Final = Gauge(
    "trainmaster_log_rule_number", "The number that a log rule of a TrainJob captured last",
    ("trainjob_namespace", "trainjob", "rule"), registry=REGISTRY,
)  # fmt: skip
READS: Final = Counter(
    "trainmaster_log_reads_total", "Reads of logs of pods for resilience policies, by result", ("result",),
    registry=REGISTRY,
)  # fmt: skip
VIOLATIONS: Final = Counter(
    "trainmaster_policy_violations_total", "Trainings that broke their resilience policy, each once in an attempt",
    ("reason",), registry=REGISTRY,
)  # fmt: skip

_READS: Final = {result: READS.labels(result) for result in get_args(ReadResult)}
_VIOLATIONS: Final = {reason: VIOLATIONS.labels(reason) for reason in get_args(ViolationReason)}
_shown: Final[set[tuple[str, str, str]]] = set()


def count_read(result: ReadResult) -> None:
    """Count a read."""
    _READS[result].inc()


def count_violation(reason: str) -> None:
    """Count a violation."""
    _VIOLATIONS[reason].inc()


def show_number(namespace: str, name: str, rule: str, number: float) -> None:
    """Show the number that a rule of a TrainJob captured, if there is room for it."""
    labels = namespace, name, rule
    if labels in _shown or len(_shown) < MOST_NUMBERS:
        _shown.add(labels)
        NUMBERS.labels(*labels).set(number)


def drop_numbers(namespace: str, name: str) -> None:
    """Show the numbers of a TrainJob no longer."""
    for labels in [each for each in _shown if each[:2] == (namespace, name)]:
        _shown.remove(labels)
        NUMBERS.remove(*labels)
