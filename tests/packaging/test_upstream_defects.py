"""The tables of what became of the originals' defects: each one that is said to be fixed has a test."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "generate_upstream_defects", ROOT / "hack/generate_upstream_defects.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


LEDGERS = ("TRAINER", "TRAINING_OPERATOR")


@pytest.mark.parametrize("ledger", LEDGERS)
def test_what_is_fixed_has_a_test(generator: ModuleType, ledger: str) -> None:
    page = getattr(generator, ledger)
    defects, errors = page.read()
    proofs = generator.read_proofs(page.ids_in)
    assert [*errors, *page.faults(defects, proofs)] == []


def test_all_defects_of_the_training_operator_are_in_its_table(generator: ModuleType) -> None:
    defects, _ = generator.TRAINING_OPERATOR.read()
    assert [each.id for each in defects] == [f"V1-B{number}" for number in range(1, 41)]


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("test_b5_counts", ["B5"]),
        ("test_b5_u11_trainer_s2_counts", ["B5", "U11", "S2"]),
        ("test_s2_a_guarantee", []),
        ("test_b5", []),
        ("test_ubuntu_2_is_supported", []),
        ("test_v1_b7_b8_v1_b9_counts", ["V1-B7"]),
        ("test_v1_b7_v1_b9_counts", ["V1-B7", "V1-B9"]),
        ("test_v1_is_no_id", []),
    ],
)
def test_names_of_tests_carry_ids(generator: ModuleType, name: str, ids: list[str]) -> None:
    assert [each for ledger in LEDGERS for each in getattr(generator, ledger).ids_in(name)] == ids


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("B1: {defect: d, fixed: f}", "B1: no test proves that it is fixed; its name must start with test_b1_"),
        ("S1: {defect: d, fixed: f}", "S1: no test proves that it is fixed; its name must start with test_trainer_s1_"),
        ("B1: {defect: d, kept: ''}", "B1: `kept` needs a reason"),
        ("B1: {defect: d, kept: a, open: b}", "B1: needs `defect` and exactly one of"),
        ("B2: {defect: d, kept: a}", "B1: is missing"),
        ("X1: {defect: d, kept: a}", "X1: no such id"),
    ],
)
def test_a_gap_is_named(generator: ModuleType, tmp_path: Path, text: str, fault: str) -> None:
    source = tmp_path / "defects.yaml"
    source.write_text(text)
    ledger = generator.TRAINER._replace(source=source)
    defects, errors = ledger.read()
    told = [*errors, *ledger.faults(defects, {})]
    assert len(told) == 1
    assert told[0].startswith(fault)
