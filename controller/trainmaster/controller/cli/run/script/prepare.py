"""From a program to the manifests that run it on a cluster, with what is worth knowing before it is submitted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from trainmaster.controller.cli.manifests import Manifest, Source
from trainmaster.controller.cli.printers import counted, to_yaml
from trainmaster.controller.cli.run.script.errors import ProgramError
from trainmaster.controller.cli.run.script.files import IGNORE_FILE, Files, collect_files, shown_size
from trainmaster.controller.cli.run.script.frameworks import TORCH, framework_of
from trainmaster.controller.cli.run.script.interpreter import installation_advice, is_this, missing_modules
from trainmaster.controller.cli.run.script.options import Options
from trainmaster.controller.cli.run.script.program import Program
from trainmaster.controller.cli.run.script.trainjob import Runtime, copied, job_name, mounted, source_directory
from trainmaster.runtime.jsontree import JsonObject

_SHOWN: Final = 8


def check_program(program: Program, *, python: str | None, report: Callable[[str], None]) -> None:
    """Tell what is wrong with a program as far as it can be known before it runs.

    Args:
        program: The program.
        python: The interpreter that runs it; None if that is in an image.
        report: Gets warnings.

    Raises:
        ProgramError: The interpreter that runs this runs it as well, and cannot read it; or its module is nowhere.
    """
    if program.syntax_error:
        if python is not None and is_this(python):
            raise ProgramError(program.syntax_error)
        report(f"warning: this is no Python to {python or 'the version of this command'}: {program.syntax_error}")
    for place in program.script.left_out if program.script is not None else ():
        report(f"warning: {program.title}: {place}: left out, since only Jupyter knows what it means")
    for absent in program.imports.absent:
        report(f"warning: {program.title}: {absent}")
    if python is None:
        return
    needed = [name for name, is_needed in program.imports.installed.items() if is_needed]
    if framework_of(program.imports.installed) is TORCH and TORCH.name not in needed:
        needed.append(TORCH.name)  # torchrun is a part of it
    missing = missing_modules(needed, python=python)
    if program.is_module and (name := program.entry[1].partition(".")[0]) in missing:
        raise ProgramError(
            f"{program.title}: there is no module {name}: {name}.py does not exist in {program.directory}, and the "
            "Python of the cluster has not got it"
        )
    if missing:
        report(
            f"warning: {program.title} needs {', '.join(missing)}, and the Python of the cluster has not got "
            f"{'it' if len(missing) == 1 else 'them'}\n"
            f"  what next: {installation_advice(missing, python=python)}"
        )


def local_objects(program: Program, options: Options, runtime: Runtime) -> list[Manifest]:
    """Return the objects of a program on an embedded cluster of this machine."""
    return _manifests(program, mounted(program, options, options.name or job_name(program), runtime))


def remote_objects(
    program: Program, options: Options, runtime: Runtime, *, report: Callable[[str], None]
) -> list[Manifest]:
    """Return the objects of a program on any other cluster, with its files.

    Raises:
        ProgramError: The files cannot be brought along.
    """
    made = {} if program.script is None else {program.entry[0]: program.script.text}
    directory = source_directory(program)
    needed = sorted(path.resolve() for path in program.imports.local)
    files = collect_files(directory, needed=needed, made=made)
    _require_program(program, files, directory)
    left_out = ", ".join(files.left_out[:_SHOWN]) + (", ..." if len(files.left_out) > _SHOWN else "")
    report(
        f"{program.title}: brings {counted(len(files.files), 'file')} of {directory}, {shown_size(files.size)}"
        + (f"; left out: {left_out} ({IGNORE_FILE} decides)" if left_out else "")
    )
    return _manifests(program, copied(program, options, options.name or job_name(program), runtime, files))


def _require_program(program: Program, files: Files, directory: Path) -> None:
    """Refuse to go without the program itself, which somebody may have named in the ignore file."""
    for path in program.imports.local:
        place = path.resolve()
        if place.is_relative_to(directory) and str(place.relative_to(directory)) not in files.files:
            name = place.relative_to(directory)
            raise ProgramError(f"{program.title} needs {name}, which {directory / IGNORE_FILE} leaves out")


def _manifests(program: Program, objects: list[JsonObject]) -> list[Manifest]:
    return [Manifest(Source(program.title, 0, to_yaml(each), number), each) for number, each in enumerate(objects)]
