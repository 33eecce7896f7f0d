"""The root command: `trainmaster <command>`.

The controller brings the commands in `COMMANDS`; others are found under the entry-point group `trainmaster.commands`,
so that the embedded cluster can offer its own without being imported here. An entry point is a function that gets the
subparsers of argparse, adds one, and sets its default `run` to a function of the parsed arguments that returns the exit
code. Only the command that is asked for is imported: the next one may need a hundred modules more.

What only laptops need comes with the extra `local`, and the image of the controller has no embedded cluster at all: a
command that misses a module says what to install.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from trainmaster.controller.cli.output import guarded_output
from trainmaster.runtime.version import __version__

COMMANDS = {
    "manager": "manager",
    "run": "run.command",
    "list": "jobs.list",
    "top": "top.command",
    "history": "history.command",
    "attach": "jobs.attach",
    "logs": "jobs.logs",
    "explain": "explain.command",
    "delete": "jobs.delete",
    "suspend": "jobs.suspend",
    "resume": "jobs.resume",
    "restart": "jobs.restart",
    "render": "render",
    "validate": "validate",
    "convert": "convert",
    "diff": "diff.command",
    "rbac": "rbac",
    "crds": "crds",
    "runtimes": "runtimes",
    "doctor": "doctor.command",
    "support-bundle": "support_bundle.command",
    "config": "config.command",
    "plugins": "plugins.command",
    "completion": "completion",
}
"""The controller's own commands, each with the module of this package that has its function `command`."""

COMMANDS_GROUP = "trainmaster.commands"

STARTS_PROGRAMS = frozenset({"run"})
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
    offered = _offered()
    if wanted not in (known := [*COMMANDS, *offered]) and (near := difflib.get_close_matches(wanted, known, n=1)):
        parser.error(f"there is no command {wanted!r}; did you mean {near[0]}?")
    try:
        for name in [wanted] if wanted in COMMANDS or wanted in offered else [*COMMANDS, *offered]:
            _add(name, offered, commands, asked=name == wanted)
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
    except BrokenPipeError:
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


def _parser() -> tuple[argparse.ArgumentParser, Any]:
    """Return the parser of the command line, and what commands are added to."""
    parser = argparse.ArgumentParser(
        prog="trainmaster",
        description="Distributed training on Kubernetes: the controller, and a cluster for laptops.",
    )
    parser.add_argument("--version", action="version", version=f"trainmaster {__version__}")
    return parser, parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def _offered() -> dict[str, EntryPoint]:
    """Return the commands of other distributions, by name."""
    return {point.name: point for point in sorted(entry_points(group=COMMANDS_GROUP), key=lambda point: point.name)}


def _complete() -> int:
    """Answer a shell that completes a command line; only names of commands are known without importing them."""
    from trainmaster.controller.cli.completers import complete, typed_words  # noqa: PLC0415 - needed for this only

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
        import_module(f"{__package__}.{COMMANDS[name]}").command(commands)
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
