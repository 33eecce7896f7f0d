"""The last words of a container: what of the end of its log says why it failed. Pure.

A termination message is the end of the log, 2 KB of it, where the pod asks for that. Of a Python program the line of
the exception counts, wherever in it that stands: torchrun, for instance, adds a traceback and a table of its own. Of
mpirun it counts which rank or node it has lost: it tells that in a frame of advice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from trainmaster.controller.redaction import redact

LENGTH: Final = 200
"""Characters at most."""

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_RANK: Final = re.compile(r"\[(?:rank|default)?\d+\]:\s?")
_PREFIX_OF_RANK: Final = re.compile(r"\[rank(\d{1,9})\]")
_EXCEPTION: Final = re.compile(
    r"(?:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout)|socket\.(?:gaierror|timeout))(?::|$)"
)
_OF_TORCHRUN: Final = re.compile(
    r"torch\.distributed\.elastic\.multiprocessing\.|.*torch/distributed/elastic/\S+:\d+\]"
    r"|.*local_rank: \d+ \(pid: \d+\) of binary: "
)
_OF_LAUNCHERS: Final = re.compile(r"(?:\S*\.)?ChildFailedError|subprocess\.CalledProcessError")
"""What launchers raise because a process of theirs has failed."""

_ROOT_CAUSE: Final = re.compile(r"^(rank|exitcode)\s*: (-?\d{1,9})", re.MULTILINE)
"""In torchrun's table; the first failure that it saw stands last."""

_OF_MPIRUN: Final = (
    (r"process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)", r"signal \3 ended rank \1 on node \2"),
    (r"PID (\d+) RUNNING AT (\S+) = EXIT CODE: (\d+)", r"process \1 on node \2 ended with exit code or signal \3"),
    (r"A daemon failed to report back .*Remote host: (\S+)", r"its daemon on node \1 did not start, or was lost"),
    (r"lost communication with a remote daemon\. .*Remote daemon: \S+ on node (\S+)", r"it has lost node \1"),
    (r"Connection to (\S+) closed by remote host\. \[mpiexec@", r"it has lost node \1"),
)
"""What Open MPI and MPICH say of the rank or node that ended a job, in lines that are joined, and what it means."""

_BEGINS_ANEW: Final = re.compile(r"Traceback \(most|[EWIF]\d{4} ")
_RULE: Final = re.compile(r"[\W_]*")
_SEPARATOR: Final = " | "


def last_words(message: str) -> str:
    """Return one line of at most `LENGTH` characters, without credentials; empty if the message says nothing."""
    lines = _lines(message)
    raised = _exceptions(lines)
    if raised:
        return _cut(_SEPARATOR.join(line for _, line in raised[0]))
    if lost := lost_by_mpirun(line for _, line in lines):
        return _cut(f"mpirun says: {lost}")
    own, of_torchrun = _apart([line for _, line in lines])
    causes = ", ".join(f"{name} {value}" for name, value in _ROOT_CAUSE.findall("\n".join(of_torchrun))[-2:])
    if causes and not own:
        return _cut(f"torchrun says that a process of it failed: {causes}; its own words are in the log before that")
    said: list[str] = []
    for line in reversed(own):
        if said and len(_SEPARATOR.join([line, *said])) > LENGTH:
            break
        said.insert(0, line)
    return _cut(_SEPARATOR.join(said))


def lost_by_mpirun(lines: Iterable[str]) -> str:
    """Return which rank or node mpirun has lost; empty if it does not say so."""
    text = " ".join(" ".join(lines).split())
    matches = ((re.search(pattern, text), meaning) for pattern, meaning in _OF_MPIRUN)
    return next((found.expand(meaning) for found, meaning in matches if found), "")


def exceptions(message: str) -> list[str]:
    """Return the exceptions of the first process that raised any, the last one first, a line for each."""
    return [_SEPARATOR.join(line for _, line in raised) for raised in _exceptions(_lines(message))]


def failed_rank(message: str) -> int | None:
    """Return which rank of a node failed first, as PyTorch or torchrun tells; None if neither does."""
    lines = _lines(message)
    for (prefix, _), *_ in _exceptions(lines)[:1]:
        if (of_rank := _PREFIX_OF_RANK.match(prefix)) is not None:
            return int(of_rank[1])
    told = [value for name, value in _ROOT_CAUSE.findall("\n".join(line for _, line in lines)) if name == "rank"]
    return int(told[-1]) if told else None


_Line = tuple[str, str]
"""The prefix of the process that wrote a line, and the rest."""


def _lines(message: str) -> list[_Line]:
    lines = []
    for raw in _ESCAPES.sub("", redact(message)).replace("\r", "\n").split("\n"):
        prefix = _RANK.match(raw)
        line = raw[prefix.end() :] if prefix else raw
        line = "".join(each for each in line if each.isprintable() or each == "\t").strip()
        if not _RULE.fullmatch(line):
            lines.append((prefix[0] if prefix else "", line))
    return lines


def _exceptions(lines: list[_Line]) -> list[list[_Line]]:
    """Return the lines of exceptions, each with what belongs to it: those of the first process that has any.

    Of the processes of one container, each line of which has its prefix, the first is the cause of the others.
    """
    found = [
        position
        for position, (_, line) in enumerate(lines)
        if _EXCEPTION.match(line) and not _OF_TORCHRUN.match(line) and not _OF_LAUNCHERS.match(line)
    ]
    process = lines[found[0]][0] if found else ""
    return [_with_rest(lines, position) for position in reversed(found) if lines[position][0] == process]


def _with_rest(lines: list[_Line], start: int) -> list[_Line]:
    said = [lines[start]]
    for prefix, line in lines[start + 1 :]:
        if prefix != said[0][0] or _BEGINS_ANEW.match(line) or _OF_TORCHRUN.match(line):
            break
        said.append((prefix, line))
    return said


def _apart(lines: list[str]) -> tuple[list[str], list[str]]:
    """Part what a program said from what torchrun says after it: a line of the log, a traceback of its own, a table."""
    end = next((position for position, line in enumerate(lines) if _OF_TORCHRUN.match(line)), len(lines))
    own = lines[:end]
    if own and own[-1].startswith("raise ChildFailedError"):
        own = own[: max((position for position, line in enumerate(own) if _BEGINS_ANEW.match(line)), default=0)]
    return own, lines[len(own) :]


def _cut(text: str) -> str:
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 4]} ..."
