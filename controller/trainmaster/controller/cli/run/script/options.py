"""What a command line says of a program: nodes, processes, resources, variables, and where it is to run.

All of it is for programs only: a manifest says these things itself.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from trainmaster.runtime.quantity import Quantity, QuantityError

AUTO: Final = "auto"
NAME: Final = "name"
_LEAST_MEMORY: Final = 2**20 * 10**9
"""In billionths of a byte; an interpreter alone takes more."""


class ProgramError(Exception):
    """It cannot be run as it was asked for; the text says why and what to do, perhaps in several lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was said of a program."""

    nodes: int = 1
    nproc: int | Literal["auto"] | None = None
    """Processes on each node; None: one for each GPU that was asked for, else one."""

    cpus: str | None = None
    memory: str | None = None
    memory_limit: str | None = None
    gpus: int = 0
    env: Mapping[str, str]
    name: str | None = None
    runtime: str | None = None
    image: str | None = None
    retries: int | None = None
    """How often all nodes are started anew before the job fails; None: as its runtime says, else never."""

    pip: Sequence[str] = ()
    """What is installed before the program runs, as pip takes it."""

    requirements: Sequence[str] = ()
    """Files that say the same."""

    checkpoints: str | None = None
    """A directory that stays when the job is gone; on a cluster of other machines, the claim of that name."""

    arguments: Sequence[str] = ()
    """Of the program."""


def add_program_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of programs; what is not given is absent from what is parsed."""
    group = parser.add_argument_group(
        "programs (train.py, train.ipynb, train.sh, -m MODULE, -- COMMAND)", argument_default=argparse.SUPPRESS
    )
    group.add_argument("-m", dest="module", metavar="MODULE", default=None, help="run a module, as python -m does")
    group.add_argument("--nodes", type=_whole(1), metavar="N", help="pods; default: 1")
    group.add_argument(
        "--nproc",
        type=_processes,
        metavar="N",
        help="processes on each node; auto: its number of GPUs, else CPUs; default: one for each GPU of --gpus, else 1",
    )
    group.add_argument("--cpus", type=_quantity, metavar="N", help="CPUs that each node requests; default: none")
    group.add_argument("--memory", type=_quantity, metavar="SIZE", help="memory that each node requests, as in 8Gi")
    group.add_argument(
        "--memory-limit",
        dest="memory_limit",
        type=_quantity,
        metavar="SIZE",
        help="limit of each node, beyond which processes are killed; default: none. Also the default of --memory",
    )
    group.add_argument("--gpus", type=_whole(0), metavar="N", help="GPUs of each node (nvidia.com/gpu); default: 0")
    group.add_argument(
        "--env",
        action="append",
        type=_variable,
        metavar="NAME=VALUE",
        help="environment variable; NAME alone takes your value. May be repeated",
    )
    group.add_argument(
        "--pip", action="append", metavar="PACKAGE", help="install it first, as pip install. May be repeated"
    )
    group.add_argument("--requirements", action="append", metavar="FILE", help="install these first, as pip install -r")
    group.add_argument(
        "--checkpoints",
        metavar="DIR",
        help="directory that survives restarts and further runs, in CHECKPOINT_DIR; on other clusters a "
        "PersistentVolumeClaim, created if missing",
    )
    group.add_argument("--name", metavar="NAME", help="of the TrainJob; default: the program's, with five letters")
    group.add_argument(
        "--runtime", metavar="NAME", help="default: torch-distributed, or that of the imported framework"
    )
    group.add_argument("--image", metavar="IMAGE", help="instead of the runtime's; not for embedded clusters")
    group.add_argument(
        "--retries",
        type=_whole(0),
        metavar="N",
        help="restarts of all nodes after failures; default: the runtime's, else 0",
    )
    group.add_argument("--dry-run", dest="dry_run", action="store_true", help="print the objects, and submit nothing")
    group.add_argument(
        "-o",
        "--output",
        choices=("yaml", "json", NAME),
        help="of --dry-run; default: yaml. name without --dry-run is as --no-follow",
    )


_SAID_OF_PROGRAMS: Final = {
    "nodes": "spec.trainer.numNodes",
    "nproc": "spec.trainer.numProcPerNode",
    "cpus": "spec.trainer.resourcesPerNode",
    "memory": "spec.trainer.resourcesPerNode",
    "memory_limit": "spec.trainer.resourcesPerNode",
    "gpus": "spec.trainer.resourcesPerNode",
    "env": "spec.trainer.env",
    "name": "metadata.name",
    "runtime": "spec.runtimeRef",
    "image": "spec.trainer.image",
    "retries": "spec.resiliencePolicy.maxRestarts",
    "pip": "the image",
    "requirements": "the image",
    "checkpoints": "spec.runtimePatches",
    "dry_run": "",
    "output": "",
}


def program_options(parsed: argparse.Namespace) -> Options:
    """Return what was said of a program.

    Raises:
        ProgramError: It contradicts itself.
    """
    if hasattr(parsed, "output") and parsed.output != NAME and not hasattr(parsed, "dry_run"):
        raise ProgramError("--output is the form of --dry-run, which is not there")
    given = {
        name: getattr(parsed, name)
        for name in _SAID_OF_PROGRAMS
        if hasattr(parsed, name) and name not in ("env", "dry_run", "output")
    }
    is_command = not parsed.files and parsed.module is None
    arguments = () if is_command else tuple(parsed.arguments)
    options = Options(**given, env=dict(getattr(parsed, "env", ())), arguments=arguments)
    memory, limit = options.memory, options.memory_limit
    if memory is not None and limit is not None and Quantity.parse(memory).nano > Quantity.parse(limit).nano:
        raise ProgramError(f"--memory {memory} is more than --memory-limit {limit}")
    for file in options.requirements:
        if not Path(file).is_file():
            raise ProgramError(f"--requirements {file}: there is no such file")
    return options


def warnings_of(options: Options) -> list[str]:
    """Return what was probably meant otherwise."""
    sizes = (("--memory", options.memory), ("--memory-limit", options.memory_limit))
    return [
        f"{option} {size} is less than 1 MiB: 8Gi are 8 GiB, and a number alone is of bytes"
        for option, size in sizes
        if size is not None and Quantity.parse(size).nano < _LEAST_MEMORY
    ]


def refuse_program_options(parsed: argparse.Namespace) -> None:
    """Refuse what is said of a program where there is none.

    Raises:
        ProgramError: There is such an option, or there are arguments.
    """
    for name, field in _SAID_OF_PROGRAMS.items():
        if hasattr(parsed, name) and (name, getattr(parsed, name)) != ("output", NAME):
            option = f"--{name.replace('_', '-')}"
            instead = f"a manifest says it itself ({field})" if field else "`trainmaster diff` shows what would change"
            raise ProgramError(f"{option} is for programs, such as train.py; {instead}")
    if parsed.arguments:
        raise ProgramError("what stands behind -- are arguments of a program, and there is none, such as train.py")


def _whole(least: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        if not text.isdecimal() or not text.isascii() or not least <= int(text) < 2**31:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return whole


def _processes(text: str) -> int | str:
    if text == AUTO:
        return AUTO
    try:
        return _whole(1)(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither {AUTO} nor a whole number from 1 on") from None


def _quantity(text: str) -> str:
    try:
        if Quantity.parse(text).nano > 0:
            return text
    except QuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    raise argparse.ArgumentTypeError(f"{text!r} is not above 0")


def _variable(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not name or not name.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if not given:
        if name not in os.environ:
            raise argparse.ArgumentTypeError(f"{name} has no value here to take; give one, as in {name}=VALUE")
        value = os.environ[name]
    return name, value
