"""How containers of a job ended that should not have, and what they said last: the facts, a line about each, and
what of the end of a log is shown of it.

- A traceback is shown from its beginning on, with those that it is chained to; without one, some lines.
- Of what is too long the beginning and the end are shown.
- torchrun adds its own traceback and a report of some forty lines, in which the program does not occur. They would push
  out of the last lines what the program said itself.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from trainmaster.controller.container_failures import (
    SIGNALS_FROM,
    ContainerFailure,
    container_statuses,
    meaning_of,
)
from trainmaster.controller.kube.clock import micro_time, parse_time
from trainmaster.runtime.jsontree import JsonObject

_LOG: Final = r"[A-Z]\d{4} \S+ \d+ torch/distributed/elastic/multiprocessing/api\.py:\d+\] (?:\[default\d+\]: ?)?"
_FAILED: Final = re.compile(_LOG + r"failed \(exitcode: (-?\d+)\)")
"""Which process failed first, and with which exit code: that of the container is always 1."""

_STOPPING: Final = re.compile(_LOG + "Sending process ")

_LINES: Final = 20
"""Without a traceback."""

_LINES_WITH_TRACEBACK: Final = 60

_RANK: Final = re.compile(r"(?:\[default\d+\]: ?)?(?:\[rank\d+\]: ?)?")
"""What torchrun and torch.distributed put before each line of a traceback."""

_BEGINNING: Final = "Traceback (most recent call last):"
_WITHIN: Final = re.compile(rf"[ |]*\| +{re.escape(_BEGINNING)}|.*\bOriginal {re.escape(_BEGINNING)}")
"""Beginnings within others: in a group, and of an error of a worker, which a loader of data repeats in its message."""

_CHAINED: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
FOR_EVER: Final = "9999"
"""Later than any time, as texts are ordered."""

_UNTOLD: Final = frozenset({"", "Error"})


def without_report(lines: Sequence[str]) -> list[str]:
    """Return the lines of a log up to the one in which torchrun tells of the process that failed, with that line."""
    kept: list[str] = []
    for line in lines:
        if _FAILED.match(line):
            return [*kept, line]
        if not _STOPPING.match(line):
            kept.append(line)
    return list(lines)


def exit_code_of_program(lines: Sequence[str]) -> int | None:
    """Return how the program ended as torchrun tells: below 0 the number of a signal; None if it tells nothing."""
    found = next((found for line in reversed(lines) if (found := _FAILED.match(line)) is not None), None)
    return None if found is None else int(found[1])


def without_verdict(lines: Sequence[str]) -> list[str]:
    """Return the lines without that in which torchrun tells of the process that failed."""
    return [line for line in lines if _FAILED.match(line) is None]


def excerpt(lines: Sequence[str]) -> list[str]:
    """Return what is to be shown of the last lines of a log; prefixes of ranks stay."""
    beginning = _beginning(lines)
    if beginning is None:
        return list(lines[-_LINES:])
    shown = list(lines[beginning:])
    if len(shown) <= _LINES_WITH_TRACEBACK:
        return shown
    half = _LINES_WITH_TRACEBACK // 2
    return [*shown[: half - 1], f"[{len(shown) - 2 * half + 1} lines are left out here]", *shown[-half:]]


def _beginning(lines: Sequence[str]) -> int | None:
    """Return where the last traceback begins, or the first of those that are chained to it."""
    found: int | None = None
    for index in range(len(lines) - 1, -1, -1):
        if _begins(lines[index]) and (found is None or _is_chained(lines[:found])):
            found = index
        elif found is not None and not _is_chained(lines[:found]):
            break
    return found


def _begins(line: str) -> bool:
    # Not only at the beginning of a line: what is drawn over ends without a newline.
    return line.rstrip().endswith(_BEGINNING) and _WITHIN.fullmatch(_text(line).rstrip()) is None


def _is_chained(before: Sequence[str]) -> bool:
    said = next((text for line in reversed(before[-5:]) if (text := _text(line).strip())), "")
    return said in _CHAINED


def _text(line: str) -> str:
    """Return a line without the prefix of its rank; of what was drawn over, such as the bar of tqdm, the last state."""
    return _RANK.sub("", line.rpartition("\r")[2], count=1)


def run_of(failure: ContainerFailure, pod: JsonObject) -> tuple[str, str]:
    """Return when the run began and ended that failed, RFC 3339."""
    # What it printed last may have been read a moment after its end.
    until = micro_time(parse_time(failure.at) + timedelta(seconds=1)) if failure.at else FOR_EVER
    for container in container_statuses(pod):
        for name in ("state", "lastState"):
            ended = (container.get(name) or {}).get("terminated") or {}
            if container["name"] == failure.container and (ended.get("finishedAt") or "") == failure.at:
                return ended.get("startedAt") or pod["metadata"]["creationTimestamp"], until
    return pod["metadata"]["creationTimestamp"], until


@dataclass(slots=True)
class Failure:
    """One run of a container that failed, with the end of its log."""

    failure: ContainerFailure
    who: str
    """What failed: a node with its ranks, what else a pod is of its job, or a container beside these."""

    lines: Sequence[str]
    """The last lines of its log; empty if there are none, or if they could not be read any more."""

    seen: bool = False
    """Whether they were printed already, and nothing since that would hide them."""

    since: str = ""
    """When the run began, RFC 3339."""

    until: str = FOR_EVER
    """When it ended."""

    @property
    def text(self) -> str:
        """One line about it."""
        return f"{self.who} failed: {_describe(self.failure, exit_code_of_program(self.lines))}"

    @property
    def excerpt(self) -> list[str]:
        """What of the last lines is shown."""
        return excerpt(self.lines)


def _describe(failure: ContainerFailure, of_program: int | None) -> str:
    """Say in one line how it failed, and in which of all its runs."""
    reason = "" if failure.reason in _UNTOLD else f", {failure.reason}"
    meaning = meaning_of(failure.exit_code, failure.reason)
    code = f"exit code {failure.exit_code}{reason}{f' ({meaning})' if meaning else ''}"
    if of_program is not None and of_program != failure.exit_code:
        code += f"; torchrun says that its process ended {_by(of_program)}"
    return f"{code}; {attempt_of(failure)}, pod {failure.pod}"


def _by(exit_code: int) -> str:
    """Say how a process ended, as its parent sees it: of signals the number below 0."""
    if exit_code >= 0:
        meaning = meaning_of(exit_code)
        return f"with exit code {exit_code}{f' ({meaning})' if meaning else ''}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        return f"by signal {-exit_code}"
    meaning = meaning_of(SIGNALS_FROM - exit_code)
    return f"by {name}" + ("" if meaning == f"ended by {name}" else f" ({meaning})")


def attempt_of(failure: ContainerFailure) -> str:
    """Say in which attempt of the whole workload it was, and in which run of its container, as conditions do."""
    return f"attempt {failure.attempt}{f', restart {failure.run}' if failure.run else ''}"
