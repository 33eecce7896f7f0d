"""`trainmaster crds`: the definitions of Trainer's and the Training Operator's kinds, for whoever has only the wheel.

Exit codes: 0 printed; 2 there is no such definition.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trainmaster.runtime
from trainmaster.controller.cli.options import CommandError, reporting_errors
from trainmaster.controller.cli.printers import print_objects
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml


def command(commands: Any) -> None:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "crds",
        description="Print the CustomResourceDefinitions of Trainer (trainer.kubeflow.org) and the Training Operator "
        "(kubeflow.org). `trainmaster crds | kubectl apply --server-side -f -` installs them.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="for instance trainjobs, TrainJob, or a whole group; default: all"
    )
    parser.add_argument(
        "--without",
        action="extend",
        default=[],
        type=lambda text: text.split(","),
        metavar="NAME,...",
        help="omit these, for instance mpijobs beside the MPI Operator",
    )
    parser.add_argument("-o", "--output", choices=("yaml", "json", "name"), default="yaml", help="default: yaml")
    parser.set_defaults(run=reporting_errors(run))


def run(arguments: argparse.Namespace) -> int:
    """Print definitions; returns the exit code."""
    left_out = _named(arguments.without)
    chosen = [name for name in _named(arguments.names) or definition_files() if name not in left_out]
    if arguments.output == "yaml":
        print("---\n".join(definition_files()[name].read_text(encoding="utf-8") for name in chosen), end="")
    elif arguments.output == "json":
        print_objects([definition(name) for name in chosen], form="json")
    else:
        for name in chosen:
            print(f"customresourcedefinition.apiextensions.k8s.io/{name}")
    return 0


def _named(names: Sequence[str]) -> list[str]:
    """Return the definitions that have these names, each once, in the order of the question."""
    found: dict[str, None] = {}
    for asked in names:
        matching = [name for name in definition_files() if asked.lower() in _names_of(name)]
        if not matching:
            plurals = [name.partition(".")[0] for name in definition_files()]
            raise CommandError(f'there is no definition "{asked}" {did_you_mean(asked.lower(), plurals)}')
        found |= dict.fromkeys(matching)
    return list(found)


def _names_of(name: str) -> list[str]:
    """Return what a definition may be asked for by, in small letters; the name of its group stands for all of that."""
    plural, _, group = name.partition(".")
    return [name, group, plural, plural.removesuffix("s")]


@functools.cache
def definition(name: str) -> JsonObject:
    """Read the definition of that name."""
    read: JsonObject = load_yaml(definition_files()[name].read_bytes())
    return read


def definitions_of(group: str) -> list[str]:
    """Return the names of the definitions of a group."""
    return [name for name in definition_files() if name.partition(".")[2] == group]


@functools.cache
def definition_files() -> dict[str, Path]:
    """Find the files of all definitions, by name."""
    directory = shipped("crds")
    files = sorted(directory.glob("*.yaml"))
    if not files:
        raise CommandError(f"there are no definitions in {directory}; install trainmaster again")
    return {"{1}.{0}".format(*path.stem.split("_")): path for path in files}


def shipped(what: str) -> Path:
    """Return where files of the installation are; in a checkout they are where users of clusters find them."""
    package = Path(trainmaster.runtime.__file__).parent
    packaged = package / what
    return packaged if packaged.is_dir() else package.parents[2] / "deploy" / what
