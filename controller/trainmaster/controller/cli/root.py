"""The root command: `trainmaster <command>`.

The controller brings the commands in `COMMANDS`; others are found under the entry-point group `trainmaster.commands`,
so that the embedded cluster can offer its own without being imported here. An entry point is a function that gets the
subparsers of argparse, adds one, and sets its default `run` to a function of the parsed arguments that returns the exit
code. Only the command that is asked for is imported: the next one may need a hundred modules more. The overview of all
commands imports none of ours.

What only laptops need comes with the extra `local`, and the image of the controller has no embedded cluster at all: a
command that misses a module says what to install.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from trainmaster.controller.cli.output import guarded_output
from trainmaster.runtime.version import __version__

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "manager": ("manager", "run the controller"),
    "run": ("run.command", "run a program or TrainJobs, and follow them"),
    "list": ("jobs.list", "list jobs: their states, nodes, restarts and times"),
    "top": ("top.command", "watch jobs, nodes and the manager on one screen"),
    "history": (
        "history.command",
        "list jobs that have ended, also those that were deleted, and tell what became of one",
    ),
    "attach": ("jobs.logs:attach", "follow a job that runs already"),
    "logs": ("jobs.logs", "print what a job has printed: rank 0, another rank or all of them"),
    "exec": ("jobs.exec", "run a program in a container of a job that runs"),
    "stack": ("jobs.exec:stack", "print where the Python processes of a job that runs are"),
    "explain": ("explain.command", "say why a job does not start, does not finish or has failed"),
    "delete": ("jobs.change:delete", "delete jobs, their pods and the logs of these"),
    "suspend": ("jobs.change:suspend", "end the pods of jobs, to start them anew later"),
    "resume": ("jobs.change:resume", "start the pods of suspended jobs"),
    "restart": ("jobs.change:restart", "run a job again, in place of what there is or beside it"),
    "render": ("files.render", "print what TrainJobs and jobs of kubeflow.org/v1 become, without a cluster"),
    "validate": ("files.validate", "check TrainJobs, runtimes and jobs of kubeflow.org/v1 in files, without a cluster"),
    "convert": ("files.convert", "rewrite jobs of Training Operator V1, and early TrainJobs, as TrainJobs"),
    "diff": ("diff.command", "show what applying files would change in a cluster"),
    "rbac": ("rbac", "print the roles that the manager needs"),
    "crds": ("crds", "print the definitions of TrainJobs, runtimes, and the Training Operator's jobs"),
    "runtimes": ("runtimes", "install ClusterTrainingRuntimes into a cluster, or remove them"),
    "doctor": (
        "doctor.command",
        "tell whether a cluster may take an installation, and whether the one that is there is healthy",
    ),
    "support-bundle": ("support_bundle.command", "gather what a maintainer needs to help, in one file"),
    "config": ("config.command", "check configuration files of the controller, or show what is in effect"),
    "plugins": ("plugins.command", "list, explain and check the plugins that are installed, or begin one"),
    "completion": ("completion", "print what makes a shell complete commands, options, names of jobs and files"),
}
"""The controller's own commands: the module of this package that has the function `command`, and what it is for."""

COMMANDS_GROUP = "trainmaster.commands"

STARTS_PROGRAMS = frozenset({"run", "exec"})
"""Commands that start a program: what stands behind `--` is for that, and becomes `arguments`."""

EMBEDDED_CLUSTER = "trainmaster.devcluster"
"""The portion of the namespace that an installation may lack."""

LOCAL_INSTALLATION = "`pip install 'trainmaster[local]'`"

_COMPLETING = "_ARGCOMPLETE"
"""The variable by which a shell asks for completions, with the command line in others."""

Command = Callable[[Any], None]
"""Adds one command to the subparsers of argparse."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    if arguments is None and _COMPLETING in os.environ:
        return _complete()
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser, commands = _parser()
    wanted = words[0] if words else ""
    offered = {} if wanted in COMMANDS else _offered()
    if wanted not in COMMANDS and wanted not in offered:
        _refuse_misspelt(parser, wanted, [*COMMANDS, *offered])
    try:
        if wanted in COMMANDS or wanted in offered:
            _add(wanted, offered, commands, asked=True)
        else:
            _add_overview(offered, commands)
        ours = words.index("--") if wanted in STARTS_PROGRAMS and "--" in words else len(words)
        parsed, unknown = parser.parse_known_args(words[:ours], argparse.Namespace(arguments=words[ours + 1 :]))
        if unknown:
            hint = f"; {parsed.advice(words[1:], unknown)}" if wanted in STARTS_PROGRAMS else ""
            commands.choices.get(wanted, parser).error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        # The manager prints its own log, with colours.
        with nullcontext() if wanted == "manager" else guarded_output():
            code: int = parsed.run(parsed)
            sys.stdout.flush()
    except ModuleNotFoundError as error:
        is_ours = wanted in COMMANDS or (wanted in offered and offered[wanted].value.startswith("trainmaster."))
        remedy = _remedy(error) if is_ours else None
        if remedy is None:
            raise
        print(f"trainmaster: the command {wanted!r} needs {remedy}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except (BrokenPipeError, ExceptionGroup) as error:
        if isinstance(error, ExceptionGroup) and error.split(BrokenPipeError)[1] is not None:
            raise
        # The reader of our output went away, for instance `| head`.
        _forget_output()
        return 141
    except OSError as error:
        # Commands tell of the files that they read and write themselves; this is their output.
        print(f"trainmaster: {error.strerror or error}", file=sys.stderr)
        _forget_output()
        return 1
    return code


def full_parser() -> argparse.ArgumentParser:
    """Return the parser with all commands, as the reference of the command line shows them."""
    parser, commands = _parser()
    offered = _offered()
    for name in (*COMMANDS, *offered):
        _add(name, offered, commands, asked=True)
    return parser


class _Parser(argparse.ArgumentParser):
    """The parser of the command line, and those of all commands: options are written in full."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"allow_abbrev": False} | options))


class _Commands(argparse._SubParsersAction):  # type: ignore[type-arg]  # noqa: SLF001 - argparse has no public name
    """Adds commands, ours with what they are for."""

    def add_parser(self, name: str, **options: Any) -> Any:
        """Add one."""
        if name in COMMANDS:
            options["help"] = COMMANDS[name][1]
        return super().add_parser(name, **options)


def _parser() -> tuple[argparse.ArgumentParser, Any]:
    """Return the parser of the command line, and what commands are added to."""
    parser = _Parser(
        prog="trainmaster",
        description="Distributed training on Kubernetes: the controller, and a cluster for laptops.",
    )
    parser.add_argument("--version", action="version", version=f"trainmaster {__version__}")
    return parser, parser.add_subparsers(title="commands", metavar="COMMAND", required=True, action=_Commands)


def _offered() -> dict[str, EntryPoint]:
    """Return the commands of other distributions, by name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - most commands are ours, and need none of this

    return {point.name: point for point in sorted(entry_points(group=COMMANDS_GROUP), key=lambda point: point.name)}


def _refuse_misspelt(parser: argparse.ArgumentParser, wanted: str, known: Sequence[str]) -> None:
    """End with what was meant, if a word is nearly the name of a command."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed for this only

    if near := get_close_matches(wanted, known, n=1):
        parser.error(f"there is no command {wanted!r}; did you mean {near[0]}?")


def _add_overview(offered: Mapping[str, EntryPoint], commands: Any) -> None:
    """Add all commands, ours by their names alone."""
    for name in COMMANDS:
        commands.add_parser(name)
    for name in offered:
        _add(name, offered, commands, asked=False)


def _complete() -> int:
    """Answer a shell that completes a command line; only names of commands are known without importing them."""
    from trainmaster.controller.cli.completion import complete, typed_words  # noqa: PLC0415 - needed for this only

    parser, commands = _parser()
    offered = _offered()
    wanted = next(iter(typed_words()), "")
    if wanted in COMMANDS or wanted in offered:
        _add(wanted, offered, commands, asked=True)
    else:
        for name in (*COMMANDS, *offered):
            commands.add_parser(name)
    complete(parser)
    return 0


@contextmanager
def _without_rich() -> Iterator[None]:
    """Import modules without rich, which structlog imports wherever it is: a fifth of the CPU that `list` starts with.

    It would print tracebacks by it, and `log_config` prints them in plain text. Displays import rich when they begin.
    """
    if "rich" in sys.modules:
        yield
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # as Python's documentation says
    try:
        yield
    finally:
        del sys.modules["rich"]


def _forget_output() -> None:
    """Drop what cannot be written; the interpreter would try again when it ends, and report that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _remedy(error: ModuleNotFoundError) -> str | None:
    """Say which part of an installation one of our commands misses, and where it can be had; None if it is a defect."""
    module = error.name or ""
    if module == EMBEDDED_CLUSTER or module.startswith(f"{EMBEDDED_CLUSTER}."):
        return (
            "the embedded cluster, which is not part of this installation (the controller's image has none); "
            f"elsewhere, {LOCAL_INSTALLATION} brings it"
        )
    if not module or module.partition(".")[0] == "trainmaster":
        return None
    return f"the module {module!r}, which is not installed; {LOCAL_INSTALLATION} brings all that it needs"


def _add(name: str, offered: Mapping[str, EntryPoint], commands: Any, *, asked: bool) -> None:
    """Add a command; one of another distribution that is broken costs itself only."""
    if name in COMMANDS:
        module, _, function = COMMANDS[name][0].partition(":")
        with _without_rich():
            found = import_module(f"{__package__}.{module}")
        getattr(found, function or "command")(commands)
        return
    try:
        command: Command = offered[name].load()
        command(commands)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith(EMBEDDED_CLUSTER):
            if asked:
                raise
            return  # no part of this installation: the overview lists what there is
        print(f"trainmaster: no command {name!r}: {offered[name].value}: {error}", file=sys.stderr)
