"""The program that a command line asks for: a script, a module (`-m`), a notebook, or any command behind `--`.

- It is read, and nothing of it is run: what it imports, and where Python will look for that. Whether it is Python at
  all is said by this interpreter, which need not be the one that will run it.
- Scripts that are no Python are run by the interpreter of their first line, else by `sh`. Of a command, the program of
  Python among its words tells what it imports.
"""

from __future__ import annotations

import shlex
import tokenize
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from trainmaster.controller.cli.run.script.imports import Imports, absent_module, imports_of, near_name
from trainmaster.controller.cli.run.script.notebook import Notebook, cell_of, convert_notebook
from trainmaster.controller.cli.run.script.options import ProgramError

SCRIPT: Final = ".py"
NOTEBOOK: Final = ".ipynb"
SHELL: Final = ".sh"
LAUNCHERS: Final = ("torchrun", "python", "python3")
"""What starts programs, and is not to be written in front of one."""

_MANIFESTS: Final = (".yaml", ".yml", ".json")
_LONGEST_TITLE: Final = 60
_MANY: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is to run, and where."""

    title: str
    """As its author calls it: `train.py`, `-m package.train`, `train.ipynb`, `./train.sh`, `make train`."""

    name: str
    """Its last name, without an ending: `train`."""

    entry: tuple[str, ...]
    """What follows its launcher in `directory`; of a notebook, the file that its script is to have."""

    launcher: tuple[str, ...] | None = None
    """What starts it: of a script its interpreter, of a command nothing; None: python or torchrun."""

    directory: Path
    """The working directory, from which its files are brought along where they have to be."""

    imports: Imports

    syntax_error: str = ""
    """Why it is no Python to this interpreter, with the line."""

    script: Notebook | None = None
    """What a notebook became."""

    @property
    def is_module(self) -> bool:
        """Whether it is run by `-m`."""
        return self.entry[0] == "-m"

    @property
    def is_file(self) -> bool:
        """Whether `entry` names a file in `directory`, or beside it."""
        return not (self.is_module or self.script is not None or self.launcher == ())


def is_program(file: str) -> bool:
    """Whether the name of a file says that it is one."""
    return file.endswith((SCRIPT, NOTEBOOK, SHELL))


def find_program(
    files: Sequence[str], module: str | None, command: Sequence[str], *, directory: Path
) -> Program | None:
    """Return the program that the arguments of a command line name; None if they are manifests.

    `command` stands behind `--`: a command if there is nothing else, else the arguments of the program.

    Raises:
        ProgramError: It cannot be read, or is not alone.
    """
    if files and files[0] in LAUNCHERS and not Path(files[0]).exists():
        program = ["-m", module] if module is not None else files[1:2]
        behind = [*files[1 if module is not None else 2 :], *command]
        again = shlex.join(["trainmaster", "run", *program, *(["--", *behind] if behind else [])])
        as_it_is = shlex.join(["trainmaster", "run", "--", files[0], *program, *behind])
        raise ProgramError(
            f"leave {files[0]} out: `run` starts it by itself, on each node, and tells it of the others\n"
            f"  what next: `{again}`; a command that is to run as it is stands behind --: `{as_it_is}`"
        )
    if module is not None:
        if files:
            raise ProgramError(
                f"-m {module} runs a module, and {files[0]} is too much: arguments of the module stand behind --"
            )
        return _module(module, directory)
    if not files:
        return _command(command, directory) if command else None
    programs = [file for file in files if is_program(file) or _has_interpreter(directory / file)]
    if not programs:
        return None
    if len(files) > 1:
        other = next(file for file in files if file != programs[0])
        raise ProgramError(
            f"{programs[0]} is a program and runs alone, without {other}\n"
            f"  what next: arguments of the program stand behind --, as in `trainmaster run {programs[0]} -- {other}`; "
            f"a command stands there as a whole, as in `trainmaster run -- {shlex.join(files)}`; "
            f"manifests are run without it, by `trainmaster run FILE...`"
        )
    path = Path(programs[0])
    content = _read(path, programs[0])
    if path.suffix == NOTEBOOK:
        return _notebook(path, programs[0], content, directory)
    absolute = directory / path
    if path.suffix != SCRIPT:
        return Program(
            title=programs[0],
            name=path.stem,
            entry=(programs[0],),
            launcher=_interpreter(content) or ("sh",),
            directory=directory,
            imports=Imports(local={absolute}),
        )
    imports, problem = _read_imports(absolute, _decoded(path, programs[0]), programs[0], root=absolute.parent)
    return Program(
        title=programs[0],
        name=path.stem,
        entry=(programs[0],),
        directory=directory,
        imports=imports,
        syntax_error=problem,
    )


def _module(module: str, directory: Path) -> Program:
    if not all(part.isidentifier() for part in module.split(".")):
        hint = f"; run it as `trainmaster run {module}`" if is_program(module) or "/" in module else ""
        raise ProgramError(f"-m {module}: this is no name of a module, such as package.train{hint}")
    path = _locate(module, directory)
    if path is None and (absent := absent_module(module, directory) or absent_module(f"{module}.__main__", directory)):
        raise ProgramError(f"-m {module}: {absent}")
    names = [part for part in module.split(".") if part != "__main__"] or [module]
    imports, problem = Imports(installed={names[0]: True}), ""
    if path is not None and path.is_relative_to(directory):
        imports, problem = _read_imports(path, _decoded(path, f"-m {module}"), f"-m {module}", root=directory)
    elif path is not None:
        # Installed: what it imports tells the framework, and is installed with it.
        found, _ = _read_imports(path, _decoded(path, f"-m {module}"), f"-m {module}", root=path.parent)
        imports.installed = dict.fromkeys(found.installed, False) | imports.installed
    return Program(
        title=f"-m {module}",
        name=names[-1],
        entry=("-m", module),
        directory=directory,
        imports=imports,
        syntax_error=problem,
    )


def _command(words: Sequence[str], directory: Path) -> Program:
    if words[0].startswith("-"):
        raise ProgramError(f"what stands behind -- is a command, and {words[0]} is none; name a program in front of it")
    title = shlex.join(words)
    of_python = next((word for word in words if word.endswith(SCRIPT) and (directory / word).is_file()), None)
    module = words[words.index("-m") + 1 :][:1] if "-m" in words and Path(words[0]).name in LAUNCHERS else []
    program = None
    if module:
        program = _module(module[0], directory)
    elif of_python is not None:
        program = find_program([of_python], None, (), directory=directory)
    return Program(
        title=title if len(title) <= _LONGEST_TITLE else f"{title[:_LONGEST_TITLE]}...",
        name=Path(words[0]).stem if program is None else program.name,
        entry=tuple(words),
        launcher=(),
        directory=directory,
        imports=Imports() if program is None else program.imports,
        syntax_error="" if program is None else program.syntax_error,
    )


def _has_interpreter(path: Path) -> bool:
    """Whether a file names what interprets it, as scripts do."""
    if path.suffix in _MANIFESTS or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return bool(_interpreter(file.read(_MANY)))
    except OSError:
        return False


def _interpreter(content: bytes) -> tuple[str, ...]:
    """Return the words of the first line of a script that name its interpreter; none if there are none."""
    first = content.partition(b"\n")[0].decode("utf-8", "replace")
    words = first[2:].split() if first.startswith("#!") else []
    return tuple(word for word in words if word not in {"/usr/bin/env", "-S"})


def _locate(module: str, directory: Path) -> Path | None:
    """Find the file of a module, in the directory or installed, without importing its packages; None: elsewhere."""
    search: Sequence[str] | None = None
    for number, part in enumerate(module.split(".")):
        places = [str(directory)] if number == 0 else search
        spec = PathFinder.find_spec(part, places)
        if spec is None and number == 0:
            spec = PathFinder.find_spec(part)
        if spec is None:
            return None
        search = spec.submodule_search_locations
        if search is None:
            return Path(spec.origin) if spec.origin and spec.origin.endswith(SCRIPT) else None
    mains = (Path(place) / "__main__.py" for place in search or ())
    return next((path for path in mains if path.is_file()), None)


def _notebook(path: Path, title: str, content: bytes, directory: Path) -> Program:
    notebook = convert_notebook(content, title=title)
    place = (directory / path).parent.resolve()
    script = place / f"{path.stem}{SCRIPT}"
    if script.exists():
        script = place / f"{path.stem}_notebook{SCRIPT}"
    imports, problem = _read_imports(script, notebook.text, title, root=place, is_notebook=True)
    imports.local.discard(script)
    return Program(
        title=title,
        name=path.stem,
        entry=(script.name,),
        directory=place,
        imports=imports,
        syntax_error=problem,
        script=notebook,
    )


def _read_imports(path: Path, text: str, title: str, *, root: Path, is_notebook: bool = False) -> tuple[Imports, str]:
    """Return what a source imports, and why it is no Python, if it is none."""
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(text, str(path), "exec", dont_inherit=True)  # finds what the parser alone does not
            return imports_of(path, text, root=root), ""
    except SyntaxError as error:
        place = f"{title}:{error.lineno}" if error.lineno else title
        if is_notebook and error.lineno:
            cell, line = cell_of(text, error.lineno)
            place = f"{title}: cell {cell}, line {line}"
        shown = f"\n    {error.text.strip()}" if error.text and error.text.strip() else ""
        return Imports(local={path}), f"{place}: {error.msg}{shown}"
    except (ValueError, RecursionError) as error:
        return Imports(local={path}), f"{title}: {error}"


def _read(path: Path, title: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        # Their endings are alike in any case.
        beside = {each.stem: each for each in path.parent.glob("*.*") if is_program(each.name)}
        near = "" if path.exists() else near_name(path.stem, beside)
        meant = f"; did you mean {beside[near]}?" if near else ""
        raise ProgramError(f"{title}: cannot be read: {error.strerror or error}{meant}") from error


def _decoded(path: Path, title: str) -> str:
    """Read a script as Python does: by its byte order mark, its declared encoding, or as UTF-8."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (UnicodeDecodeError, SyntaxError) as error:
        raise ProgramError(f"{title}: its text cannot be decoded: {error}; save it as UTF-8") from error
    except OSError as error:
        raise ProgramError(f"{title}: cannot be read: {error.strerror or error}") from error
