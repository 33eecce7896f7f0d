"""`trainmaster completion`: the scripts that make bash, zsh and fish ask this program at TAB, and the answers to them.

The shells ask by `argcomplete`: the root command calls `complete` in place of running anything. Of the commands only
the one that is typed is imported: names of commands take a tenth of a second.

Guarantees:
- Names of jobs and namespaces come from the cluster that the command would use. They are waited for `_TIMEOUT` seconds;
  without an answer there are none, and no words about it.
- Files are completed where an argument is a file, by its metavar or type, and nowhere else.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

from argcomplete.completers import BaseCompleter, DirectoriesCompleter, FilesCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line

_TIMEOUT: Final = 2.0

SHELLS: Final = ("bash", "zsh", "fish")

_INSTALLATION: Final = """\
in this shell, or by the same line in its startup file:
  bash  eval "$(trainmaster completion bash)"
  zsh   eval "$(trainmaster completion zsh)"       after compinit
  fish  trainmaster completion fish | source

or once and for all, without a startup that takes longer:
  bash  trainmaster completion bash > ~/.local/share/bash-completion/completions/trainmaster
  zsh   trainmaster completion zsh > "${fpath[1]}/_trainmaster"
  fish  trainmaster completion fish > ~/.config/fish/completions/trainmaster.fish
"""


def typed_words() -> list[str]:
    """Return the words after the program's name that are typed already, up to the one that is to be completed."""
    line = os.environ["COMP_LINE"]
    with contextlib.suppress(ValueError):
        line = line[: int(os.environ.get("COMP_POINT", ""))]
    _, _, _, words, _ = split_line(line, len(line))
    return list(words[1:])


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell, and end the process."""
    for action in _actions(parser):
        if not hasattr(action, "completer") and action.choices is None:
            action.completer = _completer(action)  # type: ignore[attr-defined]  # argcomplete looks for it there
    CompletionFinder()(parser, always_complete_options=False, default_completer=_Nothing())


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to them, and argcomplete goes it as well
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for each in action.choices.values():
                yield from _actions(each)


class _Nothing(BaseCompleter):
    """Completes what only the user knows; argcomplete's own completer for that hides the option as well."""

    def __call__(self, **_: Any) -> list[str]:
        return []


def _completer(action: argparse.Action) -> BaseCompleter | Callable[..., list[str]]:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar == "JOB":
        return _job_names
    if action.dest in {"namespace", "manager_namespace"}:
        return _namespaces
    if metavar == "DIR":
        return DirectoriesCompleter()
    if action.type is Path or metavar in {"FILE", "PATH", "SCRIPT"} or metavar.endswith("_FILE"):
        return FilesCompleter()
    return _Nothing()


def _job_names(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    from trainmaster.controller.cli.jobs.lookup import list_jobs  # noqa: PLC0415 - not needed for options
    from trainmaster.controller.cli.jobs.options import namespace_of  # noqa: PLC0415 - as above

    async def names(client: Any) -> list[str]:
        return [job.argument for job in await list_jobs(client, namespace_of(client, wanted))]

    wanted = parsed_args
    if isinstance(parsed_args.namespace, list):  # where the option may be repeated
        wanted = argparse.Namespace(namespace=parsed_args.namespace[-1])

    already = getattr(parsed_args, "jobs", None) or []
    return [name for name in _asked(names, parsed_args) if name not in already]


def _namespaces(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    from trainmaster.controller.kube.rest.resources import NAMESPACES  # noqa: PLC0415 - as above

    async def names(client: Any) -> list[str]:
        found = await client.list(NAMESPACES, metadata_only=True)
        return [item["metadata"]["name"] for item in found["items"]]

    return _asked(names, parsed_args)


def _asked(names: Callable[[Any], Awaitable[list[str]]], arguments: argparse.Namespace) -> list[str]:
    """Ask the cluster for names; none if it does not answer, or not in time."""
    # The time for imports, those of credentials included, is no waiting for the cluster.
    import trainmaster.controller.kube.auth.kubeconfig_credentials  # noqa: F401, PLC0415 - as above
    from trainmaster.controller.cli.cluster import running_cluster  # noqa: PLC0415 - as above
    from trainmaster.controller.kube.rest.client import KubeClient  # noqa: PLC0415 - as above
    from trainmaster.controller.kube.rest.errors import KubeError  # noqa: PLC0415 - as above

    async def ask() -> list[str]:
        async with asyncio.timeout(_TIMEOUT):
            config = await running_cluster(getattr(arguments, "kubeconfig", None))
            if config is None:
                return []
            async with KubeClient(config, user_agent="trainmaster-completion", tries=1) as client:
                return await names(client)

    try:
        return asyncio.run(ask())
    except (KubeError, TimeoutError):
        return []


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "completion",
        description="Print the script by which a shell completes commands, options, names of jobs and files.",
        epilog=_INSTALLATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell that is to complete")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script of a shell; returns the exit code."""
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - no other command needs it

    # Without the defaults of bash, which offers files where nothing else is found.
    print(shellcode(["trainmaster"], use_defaults=False, shell=arguments.shell))
    return 0
