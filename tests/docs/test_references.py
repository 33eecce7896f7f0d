"""Links and references lead somewhere, and the diagram of the architecture tells of what there is."""

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
    names = re.findall(r"^- (.*) \(.*, reserved\): ", page, re.MULTILINE)
    assert {name for each in names for name in re.findall(r"`([A-Z]\w+)`", each)} == reserved


def test_every_variable_of_ours_that_a_program_reads_is_explained() -> None:
    code = [path for part in ("controller", "hack/trainmaster", "runtime") for path in (ROOT / part).rglob("*.py")]
    read = {
        name for path in code for name in re.findall(r"\"(TRAINMASTER_[A-Z_]+)\"", path.read_text(encoding="utf-8"))
    }
    assert {"TRAINMASTER_HOME", "TRAINMASTER_SLICE_ID"} <= read
    page = text("environment.md")
    assert {name for name in read if f"`{name}`" not in page} == set()


DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def test_every_link_leads_to_a_file() -> None:
    missing = [
        (str(document.relative_to(ROOT)), link)
        for document in DOCUMENTS
        for link in LINK.findall(CODE.sub("", document.read_text()))
        if not (document.parent / link).exists()
    ]
    assert missing == []


THREATS = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
TEST = re.compile(r"\[(\w+)\]\(\.\./(tests/\S+?\.py)\)")
NOT_OURS = ("a right that is yours to give", "rights that are yours to give", "nothing")


def test_every_row_of_the_threat_model_names_tests_that_there_are() -> None:
    rows = [line.rstrip(" |").rpartition(" | ")[2] for line in THREATS.splitlines() if line.startswith("| ")]
    assert len([row for row in rows if row == "held by"]) == THREATS.count("|---|\n")
    assert [row for row in rows if not TEST.match(row) and row not in (*NOT_OURS, "held by")] == []
    named = TEST.findall(THREATS)
    assert len(named) > len(rows)
    assert THREATS.count("](../tests/") == len(named)
    there = {path: (ROOT / path).read_text(encoding="utf-8") for _, path in named}
    assert [(name, path) for name, path in named if f"def test_{name}(" not in there[path]] == []


CONTROLLER = ROOT / "controller/trainmaster/controller"
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
LINKED = re.compile(r"^\| \[[^]]+\]\(\.\./controller/trainmaster/controller/(\S+?)/?\)", re.MULTILINE)
IMPORTED = re.compile(r"^\s*from trainmaster\.controller\.([\w.]+) import", re.MULTILINE)

PACKAGES = LINKED.findall(PAGE.partition("| package | content |")[2].partition("\n\n")[0])
"""Folders of the controller, in the order of the page."""


def package_of(path: str) -> str | None:
    """The innermost listed package in which a module is."""
    return next(
        (package for package in sorted(PACKAGES, key=len, reverse=True) if f"{path}/".startswith(f"{package}/")), None
    )


def test_every_package_of_the_controller_is_listed() -> None:
    folders = {path.parent.name for path in CONTROLLER.glob("*/__init__.py")}
    assert {package for package in PACKAGES if "/" not in package} == folders


def test_no_package_imports_one_that_is_listed_above_it() -> None:
    upwards = set()
    for path in CONTROLLER.rglob("*.py"):
        package = package_of(path.parent.relative_to(CONTROLLER).as_posix())
        for name in IMPORTED.findall(path.read_text(encoding="utf-8")):
            other = package_of(name.replace(".", "/"))
            if package and other and PACKAGES.index(other) < PACKAGES.index(package):
                upwards.add((package, other))
    assert upwards == set()
