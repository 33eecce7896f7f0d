"""What a program imports: the modules beside it, whose own imports count as well, what has to be installed, and which
framework it trains with.

- Nothing is imported or run to find out: the syntax trees tell. A name that is imported under a condition, in a `try`
  or only for types counts as imported, but nobody can say that the program needs it.
- Pods of an embedded cluster run with the environment in which the cluster was started. That need not be the
  environment of this command, so its Python is asked what it has.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_ASK: Final = """
import importlib.util, json, sys
print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]))
"""
_TIMEOUT: Final = 10.0

_DISTRIBUTIONS: Final = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "google": "",
    "pytorch_lightning": "pytorch-lightning",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""What modules are called on PyPI where that is another name; empty: that depends."""

_FILES_AT_MOST: Final = 1000
"""Of the modules beside a program; what they import beyond says hardly more."""

_LARGEST: Final = 4 * 2**20
_MODULES: Final = frozenset({".py", ".pyc", ".so", ".pyd"})
_CONDITIONAL: Final = (ast.If, ast.Try, ast.TryStar)
_CLOSE: Final = 0.8
_DEEPEST: Final = 3
_NO_SOURCES: Final = frozenset({"node_modules", "site-packages", "venv", "env"})


@dataclass(frozen=True, slots=True)
class Framework:
    """How programs of a framework are run."""

    name: str
    """The policy of runtimes that serve it: `mlPolicy.<name>`."""

    runtime: str
    """The built-in runtime."""

    modules: frozenset[str]
    """Modules that programs of this framework import: the framework itself, and what stands on it alone."""


TORCH: Final = Framework(
    "torch",
    "torch-distributed",
    frozenset(
        {
            *("torch", "torchvision", "torchaudio", "torchtune", "lightning", "pytorch_lightning", "accelerate"),
            *("deepspeed", "ignite", "peft", "timm", "transformers", "trl"),
        }
    ),
)
FRAMEWORKS: Final = (
    TORCH,
    Framework("jax", "jax-distributed", frozenset({"jax", "flax", "optax", "equinox", "haiku"})),
    Framework("xgboost", "xgboost-distributed", frozenset({"xgboost"})),
)
"""In the order in which they are looked for: JAX and XGBoost are also used by programs that train with PyTorch."""


def framework_of(modules: Collection[str]) -> Framework | None:
    """Return the framework that a program trains with; None: without one that is known."""
    return next((framework for framework in FRAMEWORKS if framework.modules.intersection(modules)), None)


def imported_of(framework: Framework, modules: Collection[str]) -> str:
    """Return the module by which a framework was found: itself, if the program imports it."""
    found = sorted(framework.modules.intersection(modules), key=lambda name: (name != framework.name, name))
    return found[0]


def is_this(python: str) -> bool:
    """Whether a path is that of the interpreter that runs this; the same program in another environment is not."""
    there, here = Path(python).absolute(), Path(sys.executable).absolute()
    return there.parent == here.parent and there.resolve() == here.resolve()  # it has several names in each


def missing_modules(names: Sequence[str], *, python: str) -> list[str]:
    """Return which modules are not installed for an interpreter; none if it cannot be asked."""
    if not names:
        return []
    if is_this(python):
        return [name for name in names if name not in sys.modules and find_spec(name) is None]
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that runs the cluster of this user
            [python, "-P", "-c", _ASK, *names], check=True, capture_output=True, timeout=_TIMEOUT, text=True
        )
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
    return [name for name in names if name in found]


def near_name(name: str, names: Iterable[str]) -> str:
    """Return which of some names was probably meant, in any case of letters; empty if none is near."""
    by_folded = {each.casefold(): each for each in names}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=_CLOSE)
    return by_folded[found[0]] if found else ""


def advice_for_missing(name: str, *, root: Path, project: Path, python: str) -> str:
    """Say what to do about a module that is not installed: what the project has of that name, else to install it.

    `root` is the directory in which Python looks for modules first, `project` the working directory of the program.
    """
    beside = [each.stem for each in root.iterdir() if each.suffix in _MODULES or _is_local_package(each.name, root)]
    if meant := near_name(name, beside):
        return f"{name}: did you mean {meant}, which is beside the program?"
    if (place := _elsewhere(name, project)) is not None:
        return f"{name} is in {place}, where Python does not look: --env PYTHONPATH={shlex.quote(str(place))}"
    if name in _DISTRIBUTIONS:
        return installation_advice([name], python=python)
    return f"correct {name}, or, if it is the name of a package as well, {installation_advice([name], python=python)}"


def _elsewhere(name: str, project: Path) -> Path | None:
    """Return the directory of a project that has a module, relative to it; None if there is none near its top."""
    for number, (path, directories, files) in enumerate(os.walk(project)):
        place = Path(path).relative_to(project)
        if f"{name}.py" in files or (name in directories and _is_local_package(name, Path(path))):
            return place
        is_deepest = number >= _FILES_AT_MOST or len(place.parts) >= _DEEPEST
        below = [] if is_deepest else [each for each in directories if each[0] != "." and each not in _NO_SOURCES]
        directories[:] = sorted(below)
    return None


def is_module_in(name: str, place: Path) -> bool:
    """Whether Python finds a module in a directory."""
    return bool(_local_files(name, place)) or _is_local_package(name, place)


def installation_advice(modules: Sequence[str], *, python: str) -> str:
    """Return the command that installs modules for an interpreter."""
    names = [name for name in (_DISTRIBUTIONS.get(module, module) for module in modules) if name]
    return f"{python} -m pip install {' '.join(names)}" if names else f"install it for {python}"


@dataclass(slots=True)
class Imports:
    """What a program imports."""

    installed: dict[str, bool] = field(default_factory=dict)
    """Top-level modules of others, with whether the program certainly needs them; none of the standard library.

    A package beside the program is none that has to be installed, whatever it lacks.
    """

    absent: list[str] = field(default_factory=list)
    """What packages beside the program certainly lack, as a sentence with the file of each."""

    local: set[Path] = field(default_factory=set)
    """The files beside the program that it imports, and the program itself."""

    variables: set[str] = field(default_factory=set)
    """The variables of the environment without which it cannot go on."""

    root: Path | None = None
    """The directory in which Python looks for its modules first; None if nobody looked."""


def imports_of(program: Path, text: str, *, root: Path) -> Imports:
    """Find what a program imports.

    `root` is the directory in which Python looks for its modules first.

    Raises:
        SyntaxError: The program is no Python; errors of other modules are theirs.
    """
    found = Imports(root=root)
    waiting = [(program, ast.parse(text, str(program)))]
    found.local.add(program)
    while waiting:
        path, tree = waiting.pop()
        found.variables.update(_variables(tree))
        for names, needed in _imported(tree, package=_package(path, root)):
            files = [file for name in names for file in _local_files(name, root)]
            absent = list(filter(None, (absent_module(name, root) for name in _modules(names, root))))
            found.absent += [each for each in absent if needed and each not in found.absent]
            if not files:  # a directory alone gives way to what is installed
                top = names[0].partition(".")[0]
                if top not in sys.stdlib_module_names:
                    has_to_be_installed = needed and not _is_local_package(top, root)
                    found.installed[top] = found.installed.get(top, False) or has_to_be_installed
                continue
            for file in files:
                if file in found.local or len(found.local) >= _FILES_AT_MOST:
                    continue
                found.local.add(file)
                if (parsed := _parsed(file)) is not None:
                    waiting.append((file, parsed))
    return found


def _imported(tree: ast.AST, *, package: str, needed: bool = True) -> Iterator[tuple[list[str], bool]]:
    """Yield each import: the module, then names that may be modules in it; and whether it certainly happens."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (([alias.name], needed) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node, package)
            if module:
                yield [module, *(f"{module}.{alias.name}" for alias in node.names if alias.name != "*")], needed
        else:
            yield from _imported(node, package=package, needed=needed and not isinstance(node, _CONDITIONAL))


def _variables(tree: ast.AST) -> Iterator[str]:
    """Yield each variable that is read as `os.environ["NAME"]`, under no condition."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Subscript(ast.Attribute(ast.Name("os"), "environ"), ast.Constant(str(name)), ast.Load()):
                yield name
        if not isinstance(node, (*_CONDITIONAL, ast.IfExp, ast.BoolOp)):
            yield from _variables(node)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the absolute name of the module; empty if it leads out of the root."""
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    if node.level > len(parts):
        return ""
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])


def _package(path: Path, root: Path) -> str:
    """Return the package that a file is in."""
    try:
        return ".".join(path.parent.relative_to(root).parts)
    except ValueError:
        return ""


def _local_files(name: str, root: Path) -> list[Path]:
    """Return the files that are run when a module is imported, if it is beside the program."""
    files = []
    place = root
    for part in name.split("."):
        place = place / part
        if (place / "__init__.py").is_file():
            files.append(place / "__init__.py")
        elif place.with_name(f"{part}.py").is_file():
            files.append(place.with_name(f"{part}.py"))
        elif not place.is_dir():
            break
    return files


def absent_module(name: str, root: Path) -> str:
    """Say which file a package beside the program would need to have a module; empty if nothing is known to lack."""
    parts = name.split(".")
    if not _is_local_package(parts[0], root):
        return ""
    place = root / parts[0]
    for number, part in enumerate(parts[1:], start=1):
        place = place / part
        if place.is_dir():
            continue
        if any(each.suffix in _MODULES for each in place.parent.glob(f"{part}.*")):
            return ""  # what is in it only it knows
        package = Path(*parts[:number])
        return f"{'.'.join(parts[:number])} has no module {part}: {package / part}.py does not exist"
    return ""


def _modules(names: list[str], root: Path) -> list[str]:
    """Return which names are certainly modules: the first one, and what is imported from a mere directory."""
    place = root.joinpath(*names[0].split("."))
    is_directory = place.is_dir() and not (place / "__init__.py").exists() and not place.with_suffix(".py").exists()
    return names if is_directory else names[:1]


def _is_local_package(name: str, root: Path) -> bool:
    """Whether Python finds a package beside the program: one without `__init__.py` only if none is installed."""
    place = root / name
    if (place / "__init__.py").is_file():
        return True
    if not any(itertools.chain(place.glob("*.py"), place.glob("*/*.py"))):
        return False  # such as what a library of that name writes
    spec = PathFinder.find_spec(name)
    return spec is None or spec.origin is None


def _parsed(file: Path) -> ast.Module | None:
    try:
        if file.stat().st_size > _LARGEST:
            return None
        return ast.parse(file.read_bytes(), str(file))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None  # whoever runs the program is told
