"""The face of the runtime for authors of plugins: whole, documented, light; what is promised is written down."""

import ast
import importlib.util
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from trainmaster.runtime import sdk
from trainmaster.runtime.framework import interface
from trainmaster.runtime.framework.signatures import PHASES

ROOT = Path(__file__).resolve().parents[2]
STORED = "# head\nAPI version 1.4\n\nclass Watch\nWatch demands kind: str\nWatch.kind: str\n"
LINES = ["class Watch", "Watch demands kind: str", "Watch.kind: str"]


def _generator() -> ModuleType:
    sys.path.insert(0, str(ROOT / "hack"))
    try:
        spec = importlib.util.spec_from_file_location("generate_sdk_api", ROOT / "hack/generate_sdk_api.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "hack"))
    return module


GENERATOR = _generator()


def test_all_that_is_imported_is_exported_and_sorted() -> None:
    tree = ast.parse(Path(sdk.__file__).read_text(encoding="utf-8"))
    imported = {name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert imported == set(sdk.__all__)
    assert len(sdk.__all__) == len(set(sdk.__all__))


def test_it_has_every_extension_point_and_the_version() -> None:
    assert {each.__name__ for each in PHASES.values()} <= set(sdk.__all__)
    assert sdk.API_VERSION == interface.API_VERSION


@pytest.mark.nightly
def test_importing_it_brings_neither_the_controller_nor_an_event_loop() -> None:
    program = (
        "import sys; import trainmaster.runtime.sdk;"
        "print(*sorted(n for n in sys.modules if n.startswith(('trainmaster.controller', 'trainmaster.devcluster',"
        " 'trainmaster.plugins')) or n in ('aiohttp', 'pytest', 'kubernetes_asyncio')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert not done.stdout.split()


def _exported() -> Iterator[tuple[str, Any]]:
    for name in sdk.__all__:
        thing = getattr(sdk, name)
        if getattr(thing, "__module__", "").startswith("trainmaster."):
            yield name, thing


def test_everything_public_says_what_it_is() -> None:
    things = [(name, thing) for name, thing in _exported() if inspect.isclass(thing) or inspect.isfunction(thing)]
    undocumented = [name for name, thing in things if not inspect.getdoc(thing)]
    undocumented += [
        f"{name}.{member}" for name, thing in things if inspect.isclass(thing) for member in _undocumented(thing)
    ]
    assert not undocumented, "no docstring says what these are"


def test_what_is_raised_is_told() -> None:
    untold = [
        name
        for name, function in _functions()
        if "Raises" not in (inspect.getdoc(function) or "")
        and any(isinstance(node, ast.Raise) and node.exc for node in ast.walk(_tree(function)))
    ]
    assert not untold


def _functions() -> Iterator[tuple[str, Any]]:
    for name, thing in _exported():
        members = list(vars(thing).items()) if inspect.isclass(thing) else [("", thing)]
        for member, value in members:
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if not member.startswith("_") and inspect.isfunction(function):
                yield f"{name}.{member}".strip("."), function


def _tree(function: Any) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _undocumented(thing: type) -> Iterator[str]:
    """The public methods and fields of a class that no docstring tells of."""
    for member, value in list(vars(thing).items()):
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not member.startswith("_") and inspect.isfunction(function) and not inspect.getdoc(function):
            yield member
    (node,) = (
        each
        for each in ast.walk(ast.parse(Path(inspect.getfile(thing)).read_text(encoding="utf-8")))
        if isinstance(each, ast.ClassDef) and each.name == thing.__name__
    )
    documented_by_class = inspect.getdoc(thing) or ""
    for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
        names = _fields(statement, enum=issubclass(thing, Enum))
        told = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        names = [each for each in names if not _documented_by_its_class(thing, each)]
        yield from (each for each in names if not told and f"`{each}`" not in documented_by_class)


def _documented_by_its_class(thing: Any, field: str) -> bool:
    """A field of a model that is a model itself."""
    annotation = thing.model_fields[field].annotation if issubclass(thing, BaseModel) else None
    return any(inspect.isclass(each) and issubclass(each, BaseModel) for each in (annotation, *get_args(annotation)))


def _fields(statement: ast.stmt, *, enum: bool) -> list[str]:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_") and name != "model_config":
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]) if enum:
            return [name]
    return []


@pytest.mark.parametrize(
    "added", ["def join", "Watch takes indexes: bool = False", "extension point build gives cluster"]
)
def test_an_addition_takes_a_minor_step(added: str) -> None:
    told = GENERATOR.missing_step(STORED, (1, 4), [*LINES, added])
    assert told is not None
    assert "minor step" in told
    assert "API_VERSION" in told
    assert "(1, 5)" in told
    assert added in told
    assert GENERATOR.missing_step(STORED, (1, 5), [*LINES, added]) is None


@pytest.mark.parametrize(
    "now",
    [LINES[:2], [*LINES[:2], "Watch.kind: int"], [*LINES, "Watch demands group: str"]],
    ids=["gone", "changed", "demanded"],
)
def test_a_break_takes_a_major_step(now: list[str]) -> None:
    told = GENERATOR.missing_step(STORED, (1, 5), now)
    assert told is not None
    assert "major step" in told
    assert "(2, 0)" in told
    assert GENERATOR.missing_step(STORED, (2, 0), now) is None


def test_nothing_changed_takes_no_step_and_what_a_new_function_demands_breaks_nobody() -> None:
    assert GENERATOR.missing_step(STORED, (1, 4), LINES) is None
    assert GENERATOR.missing_step(STORED, (1, 5), LINES) is None
    assert GENERATOR.missing_step(STORED, (1, 5), [*LINES, "def join", "join demands info: Info"]) is None


def test_the_description_has_what_can_be_relied_on() -> None:
    """That it is stored, `make check` looks after."""
    assert {
        "extension point build gives listers: Listers",
        "extension point validate wants Iterable[FieldError | FieldWarning]",
        "Watch takes optional: bool = False",
        "attribute of plugins: options_model",
        "env_value demands name: str",
        "ApplyWhen.ONCE = 'once'",
        "NODE = 'node'",
    } <= set(GENERATOR.describe(sdk, PHASES))


def test_the_program_writes_nothing_without_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "sdk-api.txt"
    lines = [line for line in GENERATOR.describe(sdk, PHASES) if line != "def env_value"]
    stored = GENERATOR.render(sdk.API_VERSION, lines)
    target.write_text(stored)
    for argument in ([], ["--check"]):
        monkeypatch.setattr("sys.argv", ["generate_sdk_api.py", *argument])
        assert GENERATOR.main(target) == 1
        assert "def env_value" in capsys.readouterr().err
        assert target.read_text() == stored
    monkeypatch.setattr("sys.argv", ["generate_sdk_api.py", "--unreleased"])
    assert GENERATOR.main(target) == 0
    monkeypatch.setattr("sys.argv", ["generate_sdk_api.py", "--check"])
    assert GENERATOR.main(target) == 0
