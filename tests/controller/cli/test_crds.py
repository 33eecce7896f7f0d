"""`trainmaster crds`: the definitions, as they are deployed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import Ran

from trainmaster.controller.cli import main

DEPLOYED = Path(__file__).resolve().parents[3] / "deploy/crds"
JOBS = [
    "jaxjobs.kubeflow.org",
    "mpijobs.kubeflow.org",
    "paddlejobs.kubeflow.org",
    "pytorchjobs.kubeflow.org",
    "tfjobs.kubeflow.org",
    "xgboostjobs.kubeflow.org",
]
TRAINER = [
    "clustertrainingruntimes.trainer.kubeflow.org",
    "optimizationjobs.trainer.kubeflow.org",
    "trainingruntimes.trainer.kubeflow.org",
    "trainjobs.trainer.kubeflow.org",
]
NAMES = [*JOBS, *TRAINER]


def test_all_of_them_are_printed_as_they_are_deployed(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("crds").out == "---\n".join(path.read_text() for path in sorted(DEPLOYED.glob("*.yaml")))
    assert main(["crds", "-o", "name"]) == 0
    names = [f"customresourcedefinition.apiextensions.k8s.io/{name}" for name in NAMES]
    assert capsys.readouterr().out.split() == names


def test_they_are_chosen_by_any_of_their_names(ran: Ran) -> None:
    cases: dict[str, list[str]] = {
        "trainjobs": ["trainjobs.trainer.kubeflow.org"],
        "TrainJob trainjob trainjobs.trainer.kubeflow.org": ["trainjobs.trainer.kubeflow.org"],
        "trainjobs TrainingRuntime": ["trainjobs.trainer.kubeflow.org", "trainingruntimes.trainer.kubeflow.org"],
        "PyTorchJob tfjobs": ["pytorchjobs.kubeflow.org", "tfjobs.kubeflow.org"],
        "trainer.kubeflow.org": TRAINER,
        "kubeflow.org": JOBS,
        "--without mpijobs": [name for name in NAMES if name != "mpijobs.kubeflow.org"],
        "kubeflow.org --without MPIJob,tfjob --without jaxjobs": [JOBS[2], JOBS[3], JOBS[5]],
        "--without kubeflow.org": TRAINER,
    }
    for asked, names in cases.items():
        assert [line.partition("/")[2] for line in ran("crds", *asked.split(), "-o", "name").out.split()] == names
    items = json.loads(ran("crds", "trainjobs", "TrainingRuntime", "-o", "json").out)["items"]
    assert [each["metadata"]["name"] for each in items] == cases["trainjobs TrainingRuntime"]


def test_an_unknown_name_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["trainjbos"], ["--without", "trainjbos"]):
        assert main(["crds", *arguments]) == 2
        told = 'trainmaster: there is no definition "trainjbos" (did you mean "trainjobs"?)\n'
        assert capsys.readouterr().err == told
