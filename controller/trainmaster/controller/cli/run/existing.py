"""What becomes of `trainmaster run` where jobs of these names exist: attach, replace, rename, or fail.

A job is one run, so that a file which is run twice needs a decision: `--if-exists` has it, or, on a terminal, the
user is asked. Nothing is deleted before the server has agreed to the new jobs.
"""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from trainmaster.controller.cli.follow.job_status import FollowedJob, followed_job
from trainmaster.controller.cli.jobs.change import delete_alone, wait_until_gone
from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import Resource

ATTACH, REPLACE, RENAME, FAIL = "attach", "replace", "rename", "fail"
CHOICES: Final = (ATTACH, REPLACE, RENAME, FAIL)

_ANSWERS: Final = {"a": ATTACH, "r": REPLACE, "n": RENAME}
_NUMBER_DIGITS: Final = 4
"""More are no number of ours, but for instance a date."""

_QUIT: Final = frozenset({"", "q", "quit"})


@dataclass(frozen=True, slots=True)
class Taken:
    """A job that was to be created, and whose name is taken."""

    place: str
    """Where it comes from: `file:line`."""

    resource: Resource
    namespace: str
    name: str
    complaint: str
    """That the name is taken, in one line."""


@dataclass(slots=True)
class Settlement:
    """What was decided; what is in neither is created as it is."""

    attached: dict[Taken, FollowedJob] = field(default_factory=dict)
    """What is followed in place of new ones."""

    renamed: dict[Taken, str] = field(default_factory=dict)
    """The new names of what is created beside them."""


async def settle(
    client: KubeClient, taken: Iterable[Taken], *, choice: str | None, report: Callable[[str], None]
) -> Settlement:
    """Decide what becomes of jobs whose names are taken, and delete those that are to be replaced.

    Without a `choice` a terminal is asked, and elsewhere it fails.

    Raises:
        Rejected: They are not to be run.
        KubeError: The cluster cannot be used.
    """
    existing = []
    for each in taken:
        try:
            existing.append((each, Job(await client.get(each.resource, each.namespace, each.name), each.resource)))
        except NotFound:
            continue  # it has gone meanwhile
    settlement = Settlement()
    if not existing:
        return settlement
    if choice is None:
        choice = _ask(existing) if sys.stdin.isatty() and sys.stderr.isatty() else FAIL
    if choice == FAIL:
        lines = [line for each, job in existing for line in (each.complaint, f"  it {_state(job)}")]
        raise Rejected([*lines, _ADVICE])
    for each, job in existing:
        if choice == ATTACH:
            settlement.attached[each] = followed_job(job.object, job.resource)
            report(f"{job.title} exists already, and is followed in place of a new one")
        elif choice == RENAME:
            settlement.renamed[each] = await _free_name(client, job, settlement.renamed.values())
            report(f"{job.title} exists already; this one is called {settlement.renamed[each]}")
        else:
            await delete_alone(client, job)
            await wait_until_gone(client, job)
            report(f"{job.title} deleted")
    return settlement


_ADVICE: Final = (
    "  what next: --if-exists attach follows it, --if-exists replace deletes it and runs this one, "
    "--if-exists rename runs this one under a new name"
)


def _state(job: Job) -> str:
    if job.outcome is not None:
        return f"has ended ({job.outcome})"
    return "is suspended" if job.is_suspended else "has not ended"


def _ask(existing: Sequence[tuple[Taken, Job]]) -> str:
    them, these = ("it", "this one") if len(existing) == 1 else ("them", "these")
    for _, job in existing:
        print(f"{job.title} exists already, and {_state(job)}", file=sys.stderr)
    question = f"[a]ttach to {them}, [r]eplace {them} by {these}, run {these} under a [n]ew name, or [q]uit? [a/r/n/Q] "
    while True:
        answer = ask(question)
        if answer in _QUIT:
            raise Rejected(["nothing was submitted"])
        if chosen := _ANSWERS.get(answer[:1]):
            return chosen


def ask(question: str) -> str:
    """Read a line, in lower case; Ctrl-C is a KeyboardInterrupt at once, where the loop would wait for the answer."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(question, end="", file=sys.stderr, flush=True)
        return input().strip().lower()
    except (EOFError, KeyboardInterrupt) as error:
        print(file=sys.stderr)  # what follows stands below the question
        if isinstance(error, KeyboardInterrupt):
            raise
        return ""
    finally:
        signal.signal(signal.SIGINT, handler)


async def _free_name(client: KubeClient, job: Job, given: Iterable[str]) -> str:
    """Return the first of `NAME-2`, `NAME-3`, ... that no job of the kind has, and that was not given yet."""
    found = await client.list(job.resource, job.namespace, metadata_only=True)
    names = {*given, *(item["metadata"]["name"] for item in found["items"])}
    stem, dash, ending = job.name.rpartition("-")
    is_numbered = bool(dash) and ending.isdecimal() and len(ending) < _NUMBER_DIGITS
    stem, number = (stem, int(ending)) if is_numbered else (job.name, 1)
    return next(name for name in (f"{stem}-{n}" for n in itertools.count(number + 1)) if name not in names)
