"""The program that a command line asks for: a script, a module (`-m`) or a notebook.

- It is read, and nothing of it is run: what it imports, and where Python will look for that. Whether it is Python at
  all is said by this interpreter, which need not be the one that will run it.
- Of a Jupyter notebook the code cells count, one after the other. Magics and shell commands mean nothing to Python: in
  cells that are no Python because of them they become comments, and each is told. The whole cell does if it begins with
  a magic such as `%%bash`, whose text is no Python.
"""

from __future__ import annotations

import ast
import difflib
import json
import tokenize
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.cli.run.script.imports import Imports, absent_module, imports_of

_MAGIC: Final = ("%", "!", "?")
_MAGIC_OF_PYTHON: Final = ("%%time", "%%timeit", "%%capture", "%%prun")
"""The first lines of cells whose rest is Python all the same."""

_OF_JUPYTER: Final = frozenset({"display", "get_ipython"})
_FOR_JUPYTER: Final = """\
# Jupyter gives its cells display(), of which a script can only print, and get_ipython(), which is None elsewhere.
def display(*objects, **options): print(*objects, sep="\\n")
def get_ipython(): return None"""
"""Goes in front of the first cell that uses a name of them."""

SCRIPT: Final = ".py"
NOTEBOOK: Final = ".ipynb"


class ProgramError(Exception):
    """It cannot be run as it was asked for; the text says why and what to do, perhaps in several lines."""


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook as a script."""

    text: str

    left_out: tuple[str, ...]
    """The cells with lines that were made comments, each as `cell 2: %matplotlib inline`."""


def convert_notebook(content: bytes, *, title: str) -> Notebook:
    """Return the script of a notebook.

    Raises:
        ProgramError: It is no notebook of nbformat 4, or not one of Python.
    """
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"{title}: it is no notebook: {error}") from error
    cells = tree.get("cells") if isinstance(tree, dict) else None
    if not isinstance(cells, list):
        raise ProgramError(
            f"{title}: it is no notebook of version 4, which has its cells under `cells`; "
            "`jupyter nbconvert --to notebook` brings older ones up to date"
        )
    language = _language(tree)
    if language != "python":
        raise ProgramError(f"{title}: it is a notebook of {language}, and only Python is run")
    parts, left_out = [], []
    is_settled = False
    for number, cell in enumerate(cells, start=1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        lines, commented = _python(_source(cell))
        left_out += [f"cell {number}: {line.strip()}" for line in commented]
        if not is_settled and (uses := _uses_jupyter("\n".join(lines))) is not None:
            parts += [_FOR_JUPYTER] if uses else []
            is_settled = True
        parts.append("\n".join([f"# cell {number}", *lines]))
    if not parts:
        raise ProgramError(f"{title}: it has no cell with code")
    return Notebook("\n\n".join(parts) + "\n", tuple(left_out))


def cell_of(text: str, line: int) -> tuple[int, int]:
    """Return the cell that a line of the script comes from, and which of its lines it is, both from 1."""
    number, begin = 0, 0
    for position, each in enumerate(text.splitlines()[:line], start=1):
        if each.startswith("# cell ") and each[7:].isdecimal():
            number, begin = int(each[7:]), position
    return number, line - begin


def _language(tree: dict[str, Any]) -> str:
    metadata = tree.get("metadata")
    kernel = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    language = kernel.get("language") if isinstance(kernel, dict) else None
    return language.lower() if isinstance(language, str) and language else "python"


def _source(cell: dict[str, Any]) -> list[str]:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return source.splitlines() if isinstance(source, str) else []


def _python(lines: list[str]) -> tuple[list[str], list[str]]:
    """Make comments of what is no Python; returns the lines, and which were changed."""
    if _parsed("\n".join(lines)) is not None:
        return lines, []
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and first.split()[0] not in _MAGIC_OF_PYTHON:
        return [f"# {line}" for line in lines], [first]
    kept, commented = [], []
    for line in lines:
        if line.lstrip().startswith(_MAGIC):
            indent = line[: len(line) - len(line.lstrip())]
            kept.append(f"{indent}pass  # {line.strip()}")
            commented.append(line)
        else:
            kept.append(line)
    return kept, commented


def _uses_jupyter(text: str) -> bool | None:
    """Return whether a cell uses what Jupyter alone gives it; False: it has its own; None: it has neither."""
    tree = _parsed(text)
    nodes = [] if tree is None else list(ast.walk(tree))
    if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in nodes):
        return None  # nothing may precede that
    made = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    made |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    names = [node for node in nodes if isinstance(node, ast.Name) and node.id in _OF_JUPYTER]
    if made & _OF_JUPYTER or any(isinstance(node.ctx, ast.Store) for node in names):
        return False
    return True if names else None


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is to run, and where."""

    title: str
    """As its author calls it: `train.py`, `-m package.train`, `train.ipynb`."""

    name: str
    """Its last name, without an ending: `train`."""

    entry: tuple[str, ...]
    """What follows `python` or `torchrun` in `directory`; of a notebook, the file that its script is to have."""

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


def is_program(file: str) -> bool:
    """Whether the name of a file says that it is one."""
    return file.endswith((SCRIPT, NOTEBOOK))


def find_program(files: Sequence[str], module: str | None, *, directory: Path) -> Program | None:
    """Return the program that the arguments of a command name; None if they are manifests.

    Args:
        files: The positional arguments.
        module: That of `-m`.
        directory: The current one.

    Raises:
        ProgramError: It cannot be read, or is not alone.
    """
    programs = [file for file in files if is_program(file)]
    if module is not None:
        if files:
            raise ProgramError(
                f"-m {module} runs a module, and {files[0]} is too much: arguments of the module stand behind --"
            )
        return _module(module, directory)
    if not programs:
        return None
    if len(files) > 1:
        other = next(file for file in files if file != programs[0])
        raise ProgramError(
            f"{programs[0]} is a program and runs alone, without {other}\n"
            f"  what next: arguments of the program stand behind --, as in `trainmaster run {programs[0]} -- {other}`; "
            f"manifests are run without it, by `trainmaster run FILE...`"
        )
    path = Path(programs[0])
    content = _read(path, programs[0])
    if path.suffix == NOTEBOOK:
        return _notebook(path, programs[0], content, directory)
    absolute = directory / path
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
        beside = (each for each in path.parent.glob("*.*") if is_program(each.name))
        near = difflib.get_close_matches(path.name, [each.name for each in beside], n=1)
        meant = f"; did you mean {path.with_name(near[0])}?" if near and not path.exists() else ""
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
