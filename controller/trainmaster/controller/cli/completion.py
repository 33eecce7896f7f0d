"""`trainmaster completion`: the scripts that make bash, zsh and fish ask this program at TAB (see `completers`)."""

from __future__ import annotations

import argparse
from typing import Any, Final

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


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "completion",
        description="Print the script by which a shell completes commands, options, names of jobs and files.",
        epilog=_INSTALLATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell that is to complete")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script of a shell; returns the exit code."""
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415 - no other command needs it

    # Without the defaults of bash, which offers files where nothing else is found.
    print(shellcode(["trainmaster"], use_defaults=False, shell=arguments.shell))
    return 0
