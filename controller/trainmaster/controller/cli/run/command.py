"""`trainmaster run`: submit a program or the jobs of some files, and follow them to their end.

Exit codes: 0 all jobs are complete; 1 a job failed, lacks its runtime, or the cluster cannot be used; 2 the files are
wrong, which includes jobs that the cluster refuses; 3 time is up; 130 interrupted; 129 or 143 ended by SIGHUP or
SIGTERM while the embedded cluster was starting.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import difflib
import functools
import logging
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.cli.cluster import (
    Interrupted,
    ManagerDown,
    manager_status,
    running_cluster,
    start_cluster,
    wait_for_manager,
)
from trainmaster.controller.cli.files.manifests import ManifestError, load_manifests
from trainmaster.controller.cli.follow.follower import TIMED_OUT, follow_jobs, make_reporter
from trainmaster.controller.cli.follow.job_status import FollowedJob
from trainmaster.controller.cli.follow.summary import Commands
from trainmaster.controller.cli.printers import BAD_INPUT, FAILURE, INTERRUPTED, complain, print_objects, report
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.cli.run.existing import CHOICES, FAIL, ask, settle
from trainmaster.controller.cli.run.script.options import (
    NAME,
    ProgramError,
    add_program_options,
    program_options,
    refuse_program_options,
)
from trainmaster.controller.cli.run.script.program import LAUNCHERS, find_program, is_program
from trainmaster.controller.cli.run.submit import Diagnosis, Submission, Submitter, is_run
from trainmaster.controller.cli.run.work import ManifestRun, ProgramRun
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError, NotFound
from trainmaster.controller.log_config import configure_logs
from trainmaster.runtime.version import __version__

_OF_TORCHRUN: Final = {"--nnodes": "--nodes", "--nproc-per-node": "--nproc", "--max-restarts": "--retries"}
_OF_THE_CONTROLLER: Final = frozenset(
    {"--master-addr", "--master-port", "--node-rank", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"}
)
_CLOSE: Final = 0.8
"""So that `--node` is taken for `--nodes`, and `--output-dir` is left to the program."""

_USER_AGENT: Final = f"trainmaster-run/{__version__}"
_PROBE_TIMEOUT: Final = 3.0
"""Seconds that a cluster gets to say of itself what a dry run could do without."""


def advice(words: Sequence[str], unknown: Sequence[str], options: Sequence[str]) -> str:
    """Say what unknown words of a command line are probably meant to be.

    `words` are all behind `trainmaster run`, and `unknown` those in front of `--` that are not understood.

    Returns:
        What follows "unrecognized arguments: ...", of several lines if the whole line can be corrected.
    """
    meant = {word: near for word in unknown if word.startswith("-") and (near := _meant(word, options))}
    set_by_us = [word for word in unknown if _name(word) in _OF_THE_CONTROLLER]
    told = []
    if meant:
        told.append(f"did you mean {' and '.join(dict.fromkeys(meant.values()))}?")
    if set_by_us:
        told.append(f"{', '.join(set_by_us)}: the controller sets what torchrun is told by that")
    line, moved = _corrected(words, unknown, meant)
    line = [word for number, word in enumerate(line) if number or word not in LAUNCHERS]
    if moved or not (meant or set_by_us):
        told.append("what is meant for a program stands behind --")
    if not any(is_program(word) or word == "-m" for word in line):
        return "; ".join(told)
    return f"{'; '.join(told)}\n  what next: `{shlex.join(['trainmaster', 'run', *line])}`"


def _name(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _meant(word: str, options: Sequence[str]) -> str | None:
    name = _name(word)
    if name in _OF_TORCHRUN:
        return _OF_TORCHRUN[name]
    if name in _OF_THE_CONTROLLER:
        return None
    names = {option.lstrip("-"): option for option in options if option.startswith("--")}
    return next((names[near] for near in difflib.get_close_matches(name.lstrip("-"), names, n=1, cutoff=_CLOSE)), None)


def _corrected(words: Sequence[str], unknown: Sequence[str], meant: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the line as it was probably meant, and what of it was moved behind `--`."""
    end = words.index("--") if "--" in words else len(words)
    waiting = list(unknown)
    kept: list[str] = []
    moved: list[str] = []
    dropped: list[str] = []
    place = kept
    for word in words[:end]:
        is_value = not word.startswith("-") and place is not kept and not is_program(word)
        if waiting and word == waiting[0]:
            waiting.pop(0)
            if word in meant:
                place = kept
                kept.append(meant[word] + word[len(word.partition("=")[0]) :])
                continue
            if word.startswith("-"):
                place = dropped if _name(word) in _OF_THE_CONTROLLER else moved
            elif not is_value and not (kept and kept[-1] in meant.values()):
                place = moved
        elif not is_value:
            place = kept
        place.append(word)
    behind = [*moved, *words[end + 1 :]]
    return [*kept, *(["--", *behind] if behind else [])], moved


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        usage="%(prog)s [options] PROGRAM [-- ARGUMENT...]\n       %(prog)s [options] -m MODULE [-- ARGUMENT...]\n"
        "       %(prog)s [options] -- COMMAND [ARGUMENT...]\n       %(prog)s [options] FILE...",
        description="Submit a program, a command or files, follow the jobs, and exit as they do. Without a kubeconfig "
        "they run in the embedded cluster of the working directory, which is started if necessary.",
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="a script (.py, .sh, or with #!), a notebook (.ipynb), YAML or JSON, a directory of manifests, or - for "
        "standard input",
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="the cluster; default: $KUBECONFIG, else the embedded one")
    parser.add_argument("-n", "--namespace", help="for objects that name none; default: that of the kubeconfig")
    keeping = parser.add_mutually_exclusive_group()
    keeping.add_argument("--delete", action="store_true", help="delete the jobs after their end")
    keeping.add_argument("--keep", action="store_true", help="keep them (the default)")
    parser.add_argument(
        "--on-interrupt",
        choices=("leave", "delete"),
        help="the jobs on Ctrl-C; default: ask on a terminal, else leave",
    )
    parser.add_argument(
        "--if-exists",
        choices=CHOICES,
        help="if the job exists: follow it, replace it, create one with a new name, or fail; default: ask on a "
        "terminal, else fail",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="stop waiting, with exit code 3; the jobs continue",
    )
    parser.add_argument(
        "--no-follow",
        action="store_true",
        help="return after submission, and print the names of the jobs, one a line",
    )
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    add_program_options(parser)
    options = [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001 - no other way
    parser.set_defaults(run=run, advice=functools.partial(advice, options=options))


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    configure_logs(level=logging.WARNING, style="console")
    try:
        work = _work_of(arguments)
        if getattr(arguments, "dry_run", False):
            return asyncio.run(_print(arguments, work))
        return asyncio.run(_run(arguments, work))
    except (ManifestError, ProgramError, Rejected) as error:
        return complain(error, BAD_INPUT)
    except (KubeError, ManagerDown) as error:
        return complain(error, FAILURE)
    except Interrupted as error:
        print(f"trainmaster: {error}", file=sys.stderr)
        return 128 + error.number
    except KeyboardInterrupt:
        # Before jobs are followed, which has its own way to end; those that were created have been reported.
        print("trainmaster: interrupted", file=sys.stderr)
        return INTERRUPTED


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _work_of(arguments: argparse.Namespace) -> ManifestRun | ProgramRun:
    """Return what is to be submitted.

    Raises:
        ManifestError: A file cannot be read.
        ProgramError: The program cannot be read, or what is said of it makes no sense.
        Rejected: There is nothing.
    """
    program = find_program(arguments.files, arguments.module, arguments.arguments, directory=Path.cwd())
    if program is not None:
        return ProgramRun(program, program_options(arguments), namespace=arguments.namespace)
    refuse_program_options(arguments)
    if not arguments.files:
        raise Rejected(["nothing to run: name a program, such as train.py, files with jobs, or a command behind --"])
    try:
        manifests = load_manifests(arguments.files)
    except ManifestError as error:
        if programs := sorted(path for path in Path(error.file).glob("*.py") if error.line is None):
            raise Rejected([str(error), f"  what next: `trainmaster run {programs[0]}` runs a program"]) from error
        raise
    return ManifestRun(manifests, namespace=arguments.namespace)


async def _print(arguments: argparse.Namespace, work: ManifestRun | ProgramRun) -> int:
    """Print what would be submitted, if it would be: a cluster judges it as it would, and none is needed."""
    config = await running_cluster(arguments.kubeconfig)
    manifests = None
    if config is not None:
        async with KubeClient(config, user_agent=_USER_AGENT, timeout=_PROBE_TIMEOUT, tries=1) as client:
            with contextlib.suppress(KubeError):
                manifests = await work.manifests(client, await manager_status(client), report=report)
                submitter = Submitter(client, manifests, namespace=arguments.namespace, diagnosis=work.diagnosis)
                taken = await submitter.check()
                if taken and arguments.if_exists in {None, FAIL}:
                    raise Rejected([each.complaint for each in taken])
    if manifests is None:
        fresh = {"python": sys.executable} if config is None else None
        manifests = await work.manifests(None, fresh, report=report)
        diagnosis = Diagnosis(manifests, namespace=arguments.namespace, runtimes_elsewhere=config is not None)
        if problems := diagnosis.errors():
            raise Rejected(problems)
    form = getattr(arguments, "output", "yaml")
    if form == NAME:
        _print_names(manifest.object["metadata"]["name"] for manifest in manifests if is_run(manifest))
    else:
        print_objects([manifest.object for manifest in manifests], form=form)
    return 0


def _print_names(names: Iterable[str]) -> None:
    for name in names:
        print(name, flush=True)


async def _run(arguments: argparse.Namespace, work: ManifestRun | ProgramRun) -> int:
    config = await running_cluster(arguments.kubeconfig)
    if config is None:
        work.check(report=report)  # before a cluster is started for nothing
        config = await start_cluster(report=report)
    async with KubeClient(config, user_agent=_USER_AGENT) as client:
        try:
            async with asyncio.timeout(arguments.timeout):
                manager = await wait_for_manager(client, report=report)
        except TimeoutError:
            report(f"the manager is not ready after {arguments.timeout:g} s; nothing was submitted")
            return TIMED_OUT
        manifests = await work.manifests(client, manager, report=report)
        submitter = Submitter(client, manifests, namespace=arguments.namespace, diagnosis=work.diagnosis)
        attached: list[FollowedJob] = []
        if taken := await submitter.check():
            settlement = await settle(client, taken, choice=arguments.if_exists, report=report)
            attached = list(settlement.attached.values())
            work.rename({(each.place, each.name): name for each, name in settlement.renamed.items()})
            places = {(each.place, each.name) for each in settlement.attached}
            manifests = [
                manifest
                for manifest in await work.manifests(client, manager, report=report)
                if (manifest.place, manifest.object["metadata"].get("name")) not in places
            ]
            submitter = Submitter(client, manifests, namespace=arguments.namespace, diagnosis=work.diagnosis)
        # What the attached ones are made of is left as it is, unless others need it.
        needed = not attached or any(map(is_run, manifests))
        submission = await work.submit(submitter, client, report=report) if needed else Submission([])
        jobs = [*attached, *submission.jobs]
        if submission.problem is not None:
            complain(submission.problem, BAD_INPUT)
            report(f"{_titles(jobs)} goes on")
        if arguments.no_follow or getattr(arguments, "output", None) == NAME:
            _print_names(job.argument for job in jobs)
            return 0 if submission.problem is None else BAD_INPUT
        commands = Commands(namespace=config.namespace, kubeconfig=arguments.kubeconfig, deletes=arguments.delete)
        reporter = make_reporter(plain=arguments.plain, commands=commands)
        code = await follow_jobs(client, jobs, reporter, timeout=arguments.timeout)
        if arguments.delete and code in {0, FAILURE}:
            await _delete(client, jobs)
        elif code == INTERRUPTED:
            await _settle_interrupt(client, jobs, arguments.on_interrupt, commands)
        return code if submission.problem is None or code == INTERRUPTED else BAD_INPUT


async def _settle_interrupt(
    client: KubeClient, jobs: Sequence[FollowedJob], choice: str | None, commands: Commands
) -> None:
    if choice is None and sys.stdin.isatty() and sys.stderr.isatty():
        try:
            answer = ask(f"\nInterrupted. Delete {_titles(jobs)}? [y/N] ")
        except KeyboardInterrupt:
            answer = ""
        choice = "delete" if answer in {"y", "yes"} else "leave"
    if choice == "delete":
        await _delete(client, jobs)
    else:
        report(f"interrupted; {commands.left(jobs)}")


async def _delete(client: KubeClient, jobs: Sequence[FollowedJob]) -> None:
    for job in jobs:
        try:
            await client.delete(job.resource, job.namespace, job.name, uid=job.uid)
        except NotFound:
            continue
        report(f"{job.title} deleted")


def _titles(jobs: Sequence[FollowedJob]) -> str:
    return ", ".join(job.title for job in jobs)
