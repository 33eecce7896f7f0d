"""Write what became of the known defects of the originals, and which tests prove it: a page for each of them.

    python hack/generate_upstream_defects.py [--check] [--strict]

docs/upstream-defects.md is about the Go controller of Trainer 2.3, docs/training-operator-defects.md about the Training
Operator V1; the defects are in YAML files beside this one. A test belongs to a defect if its name starts with the
defect's id: `test_b5_...` to B5, `test_u3_u4_...` to both, `test_trainer_s2_...` to S2 (which is spelt out, because the
ids of guarantees begin with an S as well), `test_v1_b7_...` to V1-B7. The program fails if a defect is said to be fixed
and has no test, or if a test carries an id that the file does not know. With --strict it also fails while a defect is
open.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import yaml

import generator
from proofs import ROOT, Proof, cell, line, read_proofs

OUTCOMES: Final = {
    "fixed": "Fixed",
    "kept": "Kept on purpose",
    "not_applicable": "Not applicable",
    "open": "Open",
}


class Area(NamedTuple):
    """Defects of one sort, which have numbers of their own."""

    title: str
    spelling: str
    """How the names of tests spell the beginning of the ids."""


class Ledger(NamedTuple):
    """One page, and where it comes from."""

    source: Path
    target: Path
    areas: Mapping[str, Area]
    """By the beginning of the ids."""

    head: str

    def read(self) -> tuple[list[Defect], list[str]]:
        """Read the file; returns the defects in order, and what is wrong with the file."""
        defects, errors = [], []
        for key, entry in yaml.safe_load(self.source.read_text(encoding="utf-8")).items():
            area = key.rstrip("0123456789")
            number = key.removeprefix(area)
            if area not in self.areas or not number:
                errors.append(f"{key}: no such id")
                continue
            outcomes = entry.keys() & OUTCOMES.keys()
            if set(entry) - outcomes != {"defect"} or len(outcomes) != 1:
                errors.append(f"{key}: needs `defect` and exactly one of {', '.join(OUTCOMES)}, nothing else")
                continue
            (outcome,) = outcomes
            note = line(entry[outcome])
            if not note and outcome != "fixed":
                errors.append(f"{key}: `{outcome}` needs a reason")
            defects.append(Defect(area, int(number), line(entry["defect"]), outcome, note))
        for area in self.areas:
            numbers = sorted(defect.number for defect in defects if defect.area == area)
            missing = set(range(1, max(numbers, default=0) + 1)) - set(numbers)
            errors += [f"{area}{number}: is missing" for number in sorted(missing)]
        order = list(self.areas)
        return sorted(defects, key=lambda defect: (order.index(defect.area), defect.number)), errors

    def ids_in(self, name: str) -> list[str]:
        """Return the ids that the name of a test starts with: `test_b5_trainer_s2_...` those of B5 and S2."""
        spellings = {area.spelling: beginning for beginning, area in self.areas.items()}
        one = f"({'|'.join(spellings)})(\\d+)_"
        found = re.match(f"test_(?:{one})+", name)
        return [f"{spellings[area]}{number}" for area, number in re.findall(one, found.group())] if found else []

    def faults(self, defects: Sequence[Defect], proofs: Mapping[str, Sequence[Proof]]) -> Iterator[str]:
        """Say what is wrong between defects and tests."""
        for defect in defects:
            if defect.outcome == "fixed" and not proofs.get(defect.id):
                prefix = f"test_{self.areas[defect.area].spelling}{defect.number}_"
                yield f"{defect.id}: no test proves that it is fixed; its name must start with {prefix}"
        for identity in sorted(proofs.keys() - {defect.id for defect in defects}):
            yield f"{identity}: {proofs[identity][0].name} carries this id, but {self.source.name} does not know it"

    def render(self, defects: Sequence[Defect], proofs: Mapping[str, Sequence[Proof]]) -> str:
        """Write the page."""
        counts = Counter(defect.outcome for defect in defects)
        summary = ", ".join(
            f"{counts[outcome]} {title.lower()}" for outcome, title in OUTCOMES.items() if counts[outcome]
        )
        lines = [self.head, f"{len(defects)} defects: {summary}."]
        for beginning, area in self.areas.items():
            lines += ["", f"## {area.title}", "", "| id | the original | outcome | tests |", "|---|---|---|---|"]
            lines += [self._row(each, proofs.get(each.id, ())) for each in defects if each.area == beginning]
        return "\n".join(lines) + "\n"

    def _row(self, defect: Defect, proofs: Sequence[Proof]) -> str:
        outcome = f"{OUTCOMES[defect.outcome]}. {defect.note}".strip()
        tests = ", ".join(f"[{self._short(proof.name)}](../{proof.path})" for proof in dict.fromkeys(proofs)) or "-"
        return f"| {defect.id} | {cell(defect.text)} | {cell(outcome)} | {tests} |"

    def _short(self, name: str) -> str:
        spellings = "|".join(area.spelling for area in self.areas.values())
        return re.sub(f"^test_(?:(?:{spellings})\\d+_)+", "", name).replace("_", " ")


class Defect(NamedTuple):
    """One line of the table."""

    area: str
    number: int
    text: str
    outcome: str
    note: str

    @property
    def id(self) -> str:
        """The id as people write it: `B5`."""
        return f"{self.area}{self.number}"


TRAINER: Final = Ledger(
    ROOT / "hack/upstream_defects.yaml",
    ROOT / "docs/upstream-defects.md",
    {
        "B": Area("Behaviour", "b"),
        "S": Area("Security and operations", "trainer_s"),
        "U": Area("Traps for users", "u"),
    },
    """\
# Defects of the original

<!-- Generated by hack/generate_upstream_defects.py from hack/upstream_defects.yaml; do not edit. -->

Trainmaster takes the place of the Go controller of Kubeflow Trainer 2.3: the same API, the same objects, without its
defects. This is what became of each one. What is fixed names the tests that prove it. What is kept says why: as a
rule because existing clients rely on it. What does not apply concerns a part of the original that Trainmaster does not
have. Differences that are no defects are on [a page of their own](differences.md); the
[defects of the Training Operator V1](training-operator-defects.md) as well.

Run the tests of one defect with `pytest -k test_b5_` (of S2 with `pytest -k test_trainer_s2_`).
""",
)

TRAINING_OPERATOR: Final = Ledger(
    ROOT / "hack/training_operator_defects.yaml",
    ROOT / "docs/training-operator-defects.md",
    {"V1-B": Area("Behaviour", "v1_b")},
    """\
# Defects of the Training Operator V1

<!-- Generated by hack/generate_upstream_defects.py from hack/training_operator_defects.yaml; do not edit. -->

Jobs of `kubeflow.org/v1` (PyTorchJob, TFJob, XGBoostJob, MPIJob, PaddleJob, JAXJob) are served as the Training Operator
1.9 serves them: the same API, the same pods and services, without its defects. This is what became of each one. What is
fixed names the tests that prove it. What is kept says why: as a rule because existing clients rely on it. What is seen
otherwise in recorded cases of the original is in `tests/golden/v1-differences.yaml`, by these ids.

Run the tests of one defect with `pytest -k test_v1_b5_`.
""",
)

LEDGERS: Final = (TRAINER, TRAINING_OPERATOR)


def main() -> int:
    """Run the command."""
    parser = generator.parser(__doc__)
    parser.add_argument("--strict", action="store_true", help="fail while a defect is open")
    arguments = parser.parse_args()
    errors: list[str] = []
    pages = {}
    for ledger in LEDGERS:
        defects, wrong = ledger.read()
        proofs = read_proofs(ledger.ids_in)
        errors += [*wrong, *ledger.faults(defects, proofs)]
        if arguments.strict:
            errors += [f"{defect.id}: is open: {defect.note}" for defect in defects if defect.outcome == "open"]
        pages[ledger.target] = ledger.render(defects, proofs)
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else generator.write(pages, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
