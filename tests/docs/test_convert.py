"""docs/convert.md: its examples are what the command prints, and its table has every field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.conversions import problems

from trainmaster.controller.cli import main
from trainmaster.runtime.conversion.training_operator import KINDS
from trainmaster.runtime.yamltext import load_yaml, load_yaml_documents

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/convert.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```\n\nbecomes\n\n```yaml\n(.*?)```\n", TEXT, re.DOTALL)
TABLE = TEXT.partition("## Every field")[2].partition("What no field says")[0]


def test_there_is_an_example_of_each_kind() -> None:
    kinds = [load_yaml(old)["kind"] for old, _ in EXAMPLES]
    assert sorted(kinds) == sorted([*KINDS, "TrainJob"])


@pytest.mark.parametrize(("old", "new"), EXAMPLES, ids=[load_yaml(old)["kind"] for old, _ in EXAMPLES])
def test_an_example_is_what_the_command_prints(
    old: str, new: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old.yaml").write_text(old)
    assert main(["convert", "-f", str(tmp_path / "old.yaml")]) == 0
    assert capsys.readouterr().out == new
    objects = [document for _, document in load_yaml_documents(new)]
    assert not problems(objects, tmp_path)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_field_of_a_kind_is_in_the_table(kind: str) -> None:
    definition = load_yaml((ROOT / f"deploy/crds/kubeflow.org_{kind.lower()}s.yaml").read_bytes())
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    missing = [name for name in _fields(spec) if not re.search(rf"\b{name}\b", TABLE)]
    assert not missing


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    """The names of all fields but those of pods and metrics, which are Kubernetes' own."""
    for name, field in schema.get("properties", {}).items():
        if name.endswith("ReplicaSpecs"):
            yield from field["additionalProperties"]["properties"]
            continue
        yield name
        if name != "metrics":
            yield from _fields(field)
