"""The pods of a job by what they are for: initializers, launcher, the ranks; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trainmaster.controller.cli.follow.job_status import JobStatus, pod_phase
from trainmaster.controller.container_failures import JOB_INDEX_LABEL, REPLICATED_JOB_LABEL
from trainmaster.runtime.api.constants import COMPLETION_INDEX_ANNOTATION, NODE
from trainmaster.runtime.jsontree import JsonObject

_WORDS: Final = {"Running": "running", "Succeeded": "done", "Pending": "pending", "Failed": "failed"}
_PROMISING: Final = ("Running", "Succeeded")


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Pods that do the same, of a replicated job of the JobSet."""

    name: str
    total: int
    phases: Counter[str]
    """How many of them are in which phase, or kept by what."""

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to come of them."""
        return self.phases["Succeeded"] >= self.total > 0

    @property
    def has_trouble(self) -> bool:
        """Whether one of them failed, or is kept from running by something that has a name."""
        return any(
            phase not in {*_PROMISING, "Pending", "ContainerCreating", "PodInitializing"} for phase in self.phases
        )

    @property
    def text(self) -> str:
        """For instance `2/4 running, 1 pending`."""
        if not self.phases:
            return f"0/{self.total} pods"
        first = next((each for each in _PROMISING if self.phases[each]), None) or self.phases.most_common(1)[0][0]
        parts = [f"{self.phases[first]}/{self.total} {_WORDS.get(first, first)}"]
        parts += [f"{self.phases[each]} {_WORDS.get(each, each)}" for each in sorted(self.phases) if each != first]
        return ", ".join(parts)


def rank_groups(status: JobStatus) -> list[RankGroup]:
    """Return the groups of a job in the order in which they start; of a rank that was replaced, its last pod counts."""
    latest: dict[tuple[str, str, str], JsonObject] = {}
    for pod in sorted(status.pods.values(), key=lambda pod: str(pod["metadata"].get("creationTimestamp", ""))):
        labels = pod["metadata"].get("labels") or {}
        group = labels.get(REPLICATED_JOB_LABEL, NODE)
        latest[group, labels.get(JOB_INDEX_LABEL, "0"), labels.get(COMPLETION_INDEX_ANNOTATION, "0")] = pod
    groups = []
    for name in sorted({name for name, _, _ in latest} | ({NODE} if status.nodes else set()), key=_order):
        phases = Counter(pod_phase(pod) for (group, _, _), pod in latest.items() if group == name)
        total = max(phases.total(), (status.nodes or 0) if name == NODE else 0)
        groups.append(RankGroup(name, total, phases))
    return groups


def _order(name: str) -> tuple[int, str]:
    return (0 if name.endswith("initializer") else 2 if name == NODE else 1), name


def summary(groups: Iterable[RankGroup]) -> str:
    """Say of all groups what matters most: the first that is not done yet; of a job that is, its ranks."""
    listed = list(groups)
    if not listed:
        return ""
    current = next((group for group in listed if not group.is_done), listed[-1])
    return current.text if current.name == NODE else f"{current.name} {current.text}"
