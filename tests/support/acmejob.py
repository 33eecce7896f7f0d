"""A kind of jobs that another distribution offers, for tests: installed as pip would, found by its entry point."""

import sys
from pathlib import Path

import pytest

_MODULE = """
from trainmaster.runtime.jobs.interface import JobKind, JobKindOptions


class Options(JobKindOptions):
    wings: int = 2
    colour: str = "red"


class AcmeJob(JobKind):
    kind = "AcmeJob"
    plural = "acmejobs"
    group = "GROUP"
    framework = "acme"
    replica_specs_field = "acmeReplicaSpecs"
    replica_types = ("Worker",)
    leading_types = ("Worker",)
    container_name = "acme"
    port_name = "acmejob-port"
    port = 4321
    options_model = Options
"""


def install_acmejob(directory: Path, monkeypatch: pytest.MonkeyPatch, *, group: str = "kubeflow.org") -> None:
    """Install the kind AcmeJob into a directory, for the duration of a test."""
    info = directory / "acme-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trainmaster.jobs]\nacmejob = acmejob:AcmeJob\n")
    (directory / "acmejob.py").write_text(_MODULE.replace("GROUP", group))
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.delitem(sys.modules, "acmejob", raising=False)
