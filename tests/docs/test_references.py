"""The references have all that there is: fields of the API, options of the commands, variables of pods and programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from trainmaster.controller.cli import root
from trainmaster.runtime import api
from trainmaster.runtime.api import constants

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"
CRDS = ROOT / "deploy/crds"


def text(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model, and those of its fields that are of the API's own: what is Kubernetes' own has no model."""
    yield model
    for field in model.model_fields.values():
        for kind in _types(field.annotation):
            if kind is not model and kind.__module__ in {api.TrainJob.__module__, api.TrainingRuntime.__module__}:
                yield from models(kind)


def _types(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _types(argument)


@pytest.mark.parametrize("kind", [api.TrainJob, api.ClusterTrainingRuntime, api.TrainingRuntime])
def test_every_field_that_trainmaster_reads_is_in_the_reference(kind: type[BaseModel]) -> None:
    page = text("trainer-v1alpha1.md")
    rows = set(re.findall(r"^\| \**`([^`]+)`\** \|", page, re.MULTILINE))
    read = {str(field.alias or name) for model in models(kind) for name, field in model.model_fields.items()}
    assert len(read) > 5
    assert read - rows - {"apiVersion", "kind"} == set()


def required(schema: dict[str, Any], depth: int = 3) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        if depth and name != "metadata":
            if name in schema.get("required", ()):
                yield name
            yield from required(field, depth - 1)


@pytest.mark.parametrize("path", sorted(CRDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_kind_has_its_section_with_its_required_fields(path: Path) -> None:
    spec = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)["spec"]
    page = text("trainer-v1alpha1.md" if spec["group"] == constants.GROUP else "kubeflow-v1.md")
    section = re.split(r"^## ", page.partition(f"\n## {spec['names']['kind']}\n")[2], flags=re.MULTILINE)[0]
    assert section
    schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
    for name in schema["properties"]:
        assert name in {"apiVersion", "kind"} or re.search(rf"^\| \**`{name}`\** \|", section, re.MULTILINE), name
    for name in required(schema):
        assert f"| **`{name}`** |" in page, name


def sections(page: str) -> dict[str, str]:
    parts = re.split(r"^###? `trainmaster ([a-z -]+)`$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("command", [*root.COMMANDS, "cluster up", "config show", "plugins new", "cluster repair"])
def test_what_the_help_of_a_command_lists_is_in_the_reference(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        root.main([*command.split(), "--help"])
    listed = set(re.findall(r"^  (?:-\w[^\n]*?, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)) - {"--help"}
    explained = set(re.findall(r"--[a-z-]+", sections(text("cli.md"))[command]))
    assert listed - explained == set()


def test_every_reserved_variable_of_a_framework_is_explained() -> None:
    page = text("environment.md")
    reserved = {*constants.TORCH_RESERVED_ENV, *constants.XGBOOST_RESERVED_ENV}
    reserved.update(*constants.MPI_RESERVED_ENV.values())
    rows = [line for line in page.splitlines() if line.endswith("| reserved |")]
    assert {name for line in rows for name in re.findall(r"`([A-Z]\w+)`", line.split("|")[1])} == reserved


def test_every_variable_of_ours_that_a_program_reads_is_explained() -> None:
    code = [path for part in ("controller", "hack/trainmaster", "runtime") for path in (ROOT / part).rglob("*.py")]
    read = {
        name for path in code for name in re.findall(r"\"(TRAINMASTER_[A-Z_]+)\"", path.read_text(encoding="utf-8"))
    }
    assert {"TRAINMASTER_HOME", "TRAINMASTER_SLICE_ID"} <= read
    page = text("environment.md")
    assert {name for name in read if f"`{name}`" not in page} == set()
