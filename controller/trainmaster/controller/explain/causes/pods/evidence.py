"""What the finders of causes of pods share: which pods wait, who they are, and how what they tell becomes evidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from trainmaster.controller.container_failures import container_statuses, rank_of
from trainmaster.controller.explain.findings import Evidence, parse_time, reference_to
from trainmaster.controller.explain.pods import condition_of, phase_of
from trainmaster.controller.explain.view import JobView, role_of
from trainmaster.controller.redaction import redact
from trainmaster.runtime.jsontree import JsonObject

_LONGEST: Final = 500
_MOST: Final = 3
"""Different texts that are shown of one cause."""

_SPACE: Final = re.compile(r"\s+")


def one_line(text: object, *, limit: int = _LONGEST) -> str:
    """Return what somebody wrote as one line of bounded length, without credentials."""
    line = _SPACE.sub(" ", redact(str(text or ""))).strip()
    return line if len(line) <= limit else f"{line[: limit - 4]} ..."


def waiting_pods(view: JobView) -> list[JsonObject]:
    """Return the pods that have not started, and that nobody deletes."""
    return [pod for pod in view.pods or () if phase_of(pod) == "Pending" and not is_deleted(pod)]


def is_deleted(pod: JsonObject) -> bool:
    """Say whether a pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def waiting_containers(pod: JsonObject) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Yield the containers of a pod that wait: their status, and the state in which they wait."""
    for status in container_statuses(pod):
        waiting = (status.get("state") or {}).get("waiting")
        if waiting:
            yield status, waiting


def who(pods: Sequence[JsonObject]) -> str:
    """Say of which pods something is true: `node 1`, `node 1 and 3 others`."""
    others = len(pods) - 1
    return role_of(pods[0]) + (f" and {others} other{'s' if others > 1 else ''}" if others else "")


def grouped(told: Iterable[tuple[str, JsonObject]]) -> list[tuple[str, list[JsonObject]]]:
    """Return texts with the pods that tell them; what most of them tell first, and of many texts a few."""
    groups: dict[str, list[JsonObject]] = {}
    for text, pod in told:
        groups.setdefault(text, []).append(pod)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [(text, sorted(pods, key=_order)) for text, pods in ordered[:_MOST]]


def evidence_of(groups: Sequence[tuple[str, list[JsonObject]]], *, of: int, condition: str = "") -> list[Evidence]:
    """Return a piece of evidence for each text: of one pod, with how many others tell the same.

    Args:
        groups: What `grouped` returned.
        of: How many texts were told: of those that are not in the groups it is said how many they are.
        condition: The type of the condition whose time is that of the evidence.
    """
    more = of - sum(len(pods) for _, pods in groups)
    last = len(groups) - 1
    return [
        Evidence(
            reference_to({"kind": "Pod", **pods[0]}),
            f"{who(pods)}: {one_line(text)}" + (f" ({more} more pods in other words)" if more and at == last else ""),
            parse_time(condition_of(pods[0], condition).get("lastTransitionTime")) if condition else None,
        )
        for at, (text, pods) in enumerate(groups)
    ]


def spec_of(pod: JsonObject) -> JsonObject:
    """Return what is wanted of a pod; empty if it does not say."""
    return pod.get("spec") or {}


def labels_of(obj: JsonObject) -> Mapping[str, str]:
    """Return the labels of an object."""
    return obj["metadata"].get("labels") or {}


def _order(pod: JsonObject) -> tuple[int, str]:
    role, node = role_of(pod), rank_of(pod)
    number = role.rpartition(" ")[2] if node is None else str(node)
    return (int(number) if number.isdecimal() else -1, role)
