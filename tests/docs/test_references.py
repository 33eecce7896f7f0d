"""The references have all that there is. Fields of the API and options of commands are written by generators, which
`make check` runs; what is left are kinds, and variables of pods and programs."""

from __future__ import annotations

import re
from pathlib import Path

from trainmaster.controller.cli import root
from trainmaster.runtime.api import constants

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"
CRDS = sorted((ROOT / "deploy/crds").glob("*.yaml"))


def text(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def test_every_kind_and_every_command_has_its_section() -> None:
    pages = "".join(text(name) for name in ("trainer-v1alpha1.md", "kubeflow-v1.md", "cli.md"))
    kinds = re.findall(r"^    kind: (\w+)$", "".join(path.read_text() for path in CRDS), re.MULTILINE)
    assert len(kinds) == len(CRDS)
    wanted = {f"## {kind}" for kind in kinds} | {f"## `trainmaster {command}`" for command in root.COMMANDS}
    assert wanted - set(pages.splitlines()) == set()


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
