"""The Helm chart, rendered."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from support.manifests import DEPLOY, Id, by_identity, one

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml_documents

CHART = DEPLOY / "charts/kubeflow-trainer"

HELM = shutil.which("helm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
NEEDS_HELM = [pytest.mark.skipif(HELM is None, reason="there is no helm in the environment or on PATH")]

RELEASE, NAMESPACE = "kubeflow-trainer", "kubeflow"


def helm(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run helm, with nothing of the user's own."""
    assert HELM is not None
    with tempfile.TemporaryDirectory() as home:
        return subprocess.run(
            [HELM, *arguments],
            env={"HOME": home, "PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def complete_chart(directory: Path, *, source: Path = CHART) -> Path:
    """Copy a chart, with empty ones in place of those that it depends on, which would have to be downloaded."""
    made = directory / source.name
    shutil.copytree(source, made)
    for dependency in yaml.safe_load((made / "Chart.yaml").read_text())["dependencies"]:
        vendored = made / "charts" / dependency["name"]
        vendored.mkdir(parents=True)
        metadata = {"apiVersion": "v2", "name": dependency["name"], "version": dependency["version"]}
        (vendored / "Chart.yaml").write_text(yaml.dump(metadata))
    return made


@functools.cache
def _rendered(values: str) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        chart = complete_chart(Path(directory))
        file = Path(directory) / "values.yaml"
        file.write_text(values)
        done = helm("template", RELEASE, chart, "--namespace", NAMESPACE, "--values", file)
        assert done.returncode == 0, done.stderr
        return orjson.dumps([document for _, document in load_yaml_documents(done.stdout.encode())])


def template(**values: Any) -> dict[Id, JsonObject]:
    """Return the objects of the chart with these values."""
    return by_identity(orjson.loads(_rendered(yaml.dump(values))))


def installed_runtimes(objects: dict[Id, JsonObject]) -> dict[Id, JsonObject]:
    """Return what the Job of a rendered chart installs."""
    text = one(objects, "ConfigMap", "kubeflow-trainer-runtimes-installer")["data"]["runtimes.yaml"]
    return by_identity(document for _, document in load_yaml_documents(text.encode()))


def refusal(directory: Path, values: JsonObject) -> str:
    """Return why helm renders nothing with these values."""
    file = directory / "values.yaml"
    file.write_text(yaml.dump(values))
    done = helm("template", RELEASE, complete_chart(directory), "--values", file)
    assert done.returncode != 0, done.stdout
    return done.stderr
