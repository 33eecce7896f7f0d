"""What ranks say last when they do not find each other: names, rendezvous and sizes, in the words of their libraries.

The words are those of glibc and Python (getaddrinfo), PyTorch (c10d, TCPStore, gloo, NCCL), JAX, MPI and XGBoost. An
exception that is none of these is the program's own, whatever it had printed before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from trainmaster.controller.explain.cause import Cause

_NAMES: Final = re.compile(
    r"getaddrinfo|gaierror|\bgai error\b|name or service not known|temporary failure in name resolution"
    r"|nodename nor servname|no address associated with hostname|could(?: not|n't) resolve host|NameResolutionError"
    r"|failed to resolve '|unknown host\b|UnknownHostException|dns resolution failed|lookup \S+: no such host"
    r"|addresses? of .{1,200} cannot be retrieved",
    re.IGNORECASE,
)
_SIZES: Final = re.compile(
    r"world[ _]?size\b.{0,80}(?:mismatch|differ|inconsistent|do(?:es)? not match|not equal|disagree|expected|but got)"
    r"|(?:mismatch|differ|inconsistent|expected).{0,60}world[ _]?size"
    r"|\brank\b.{0,40}(?:>=|(?:less|smaller|lower) than|out of (?:range|bounds)).{0,40}(?:world|num|size)"
    r"|invalid rank\b|duplicate rank\b|rank \d+ (?:is|was) (?:already|registered twice)"
    r"|process_id .{0,60}num_processes|num_(?:processes|nodes|workers).{0,60}(?:mismatch|does not match|differ)"
    r"|enforce fail at .*rank_? < size",
    re.IGNORECASE,
)
_RENDEZVOUS: Final = re.compile(
    r"rendezvous\w*.{0,80}(?:time|fail|clos|error)|Rendezvous(?:Timeout|Connection|Closed|State)Error"
    r"|waiting for clients|clients joined|client socket has (?:timed out|failed to connect)|wait timeout after \d+"
    r"|connect(?:ion)? timeout|timed out waiting|timed out after .{0,80}(?:connect|waiting|barrier)|socket timeout"
    r"|DistStoreError|DistNetworkError.{0,80}time"
    r"|watchdog caught collective operation timeout|nccl(?:System|Remote|Internal|Timeout)Error|NCCL error"
    r"|gloo.{0,200}(?:timed? ?out|connect failure|connectFullMesh failed)"
    r"|barrier timed out|DEADLINE_EXCEEDED|coordination service.{0,120}(?:unavailable|timed|error)|RegisterTask"
    r"|(?:orte|prte|mpirun|orted).{0,120}(?:unable to|fail|lost)|unable to reliably start one or more daemons"
    r"|ssh: connect to host .{1,200}: (?:connection|operation) (?:timed out|refused)"
    r"|(?:connect|bootstrap).{0,40}tracker.{0,80}(?:time|fail)"
    r"|failed to (?:connect to|bootstrap).{0,60}(?:tracker|communication)",
    re.IGNORECASE,
)
_EXCEPTION: Final = re.compile(
    r"(?:\[[^\]]*\]:?\s*)*(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout)(?::|$)|F\d{4} \d\d:"
)
_OF_LAUNCHERS: Final = re.compile(r"(?:\S*\.)?ChildFailedError|subprocess\.CalledProcessError")
_LAST: Final = 60
_HOST: Final = re.compile(
    r"(?:resolve(?: host(?:name)?)?|host(?:name)?|lookup|addresses of|host=)"
    r"[ :'\"(=]+([A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9])",
    re.IGNORECASE,
)
_JOINED: Final = re.compile(r"(\d+)/(\d+) clients joined")


_CAUSES: Final = (
    (_NAMES, Cause.NAME_RESOLUTION_FAILED),
    (_SIZES, Cause.WORLD_SIZE_MISMATCH),
    (_RENDEZVOUS, Cause.RENDEZVOUS_TIMEOUT),
)


READ_FROM_WORDS: Final = frozenset(cause for _, cause in _CAUSES)
"""Causes that are only ever read from what a program says."""


def said_cause(lines: Sequence[str]) -> tuple[Cause, str] | None:
    """Return why a rank failed, and the line that says so, if that tells of other ranks; None if it does not."""
    for line in _telling(lines):
        for pattern, cause in _CAUSES:
            if pattern.search(line):
                return cause, line
    return None


def unresolved_host(lines: Sequence[str]) -> str:
    """Return which name could not be resolved; empty if the lines do not say."""
    for line in _telling(lines):
        if _NAMES.search(line) and (found := _HOST.search(line)):
            return found[1]
    return ""


def clients_joined(lines: Sequence[str]) -> tuple[int, int] | None:
    """Return how many ranks were there, and how many were waited for, as PyTorch's store says it."""
    found = next((found for line in reversed(lines) if (found := _JOINED.search(line))), None)
    return None if found is None else (int(found[1]), int(found[2]))


def _telling(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines that tell why, what tells most first: the last exception, or the last lines if there is none."""
    last = [line for line in lines[-_LAST:] if line.strip()]
    raised = [line for line in last if _EXCEPTION.match(line) and not _OF_LAUNCHERS.match(line)]
    yield from reversed(raised or last)
