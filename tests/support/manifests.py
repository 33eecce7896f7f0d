"""What is in deploy/, as the tools render it that people apply it with: kustomize and Helm."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from trainmaster.controller.configuration.loading import merged
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml_documents

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = sorted(path.parent.name for path in (DEPLOY / "overlays").glob("*/kustomization.yaml"))

FILE = "controller_manager_config.yaml"
"""The name of an administrator's own configuration file in the ConfigMap."""

MANAGER = "kubeflow-trainer-controller-manager"
"""The name of the manager's Deployment, Service, ServiceAccount and so on."""

NEEDS_KUBECTL = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH"),
]

Id = tuple[str, str, str]
"""Kind, namespace and name; the namespace of what has none is empty."""


def identity(obj: JsonObject) -> Id:
    """Return what an object is called."""
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def by_identity(objects: Iterable[JsonObject]) -> dict[Id, JsonObject]:
    """Return objects by what they are called, each of which is there once."""
    found: dict[Id, JsonObject] = {}
    for obj in objects:
        assert identity(obj) not in found, f"{identity(obj)} is there twice"
        found[identity(obj)] = obj
    return found


@functools.cache
def _kustomized(directory: Path) -> bytes:
    """Return a rendered directory as JSON, which is read again for each caller: tests change what they get."""
    done = subprocess.run(
        ["kubectl", "kustomize", directory],
        env={"HOME": os.devnull, "PATH": os.environ["PATH"]},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stderr, done.stderr.decode()
    return orjson.dumps([document for _, document in load_yaml_documents(done.stdout)])


def kustomize(directory: Path) -> list[JsonObject]:
    """Return what `kubectl kustomize` makes of a directory; a warning fails."""
    documents: list[JsonObject] = orjson.loads(_kustomized(directory))
    return documents


def reachable(path: Path, start: Path) -> str:
    """The path from a directory to another one: kustomize takes no absolute ones."""
    return str(Path(*[".."] * (len(start.resolve().parts) - 1), *path.resolve().parts[1:]))


def combined(
    directory: Path,
    *,
    resource: Path,
    components: list[str],
    namespace: str | None = None,
    configuration: str | None = None,
    behavior: str = "merge",
) -> dict[Id, JsonObject]:
    """Render a kustomization as an administrator writes it, with a configuration file of his own."""
    directory.mkdir()
    content: JsonObject = {
        "resources": [reachable(resource, directory)],
        "components": [reachable(DEPLOY / "components" / name, directory) for name in components],
    }
    if namespace:
        content["namespace"] = namespace
    if configuration:
        (directory / FILE).write_text(configuration)
        generator = {"name": "kubeflow-trainer-config", "namespace": "kubeflow", "behavior": behavior, "files": [FILE]}
        content["configMapGenerator"] = [{**generator, "options": {"disableNameSuffixHash": True}}]
    (directory / "kustomization.yaml").write_text(yaml.dump(content))
    return by_identity(kustomize(directory))


def overlay(name: str) -> dict[Id, JsonObject]:
    """Return the objects of an overlay."""
    return by_identity(kustomize(DEPLOY / "overlays" / name))


def configuration_of(objects: dict[Id, JsonObject]) -> JsonObject:
    """Return the configuration that a manager reads: all files of its ConfigMap, in the order of their names."""
    data = one(objects, "ConfigMap", "kubeflow-trainer-config")["data"]
    read: JsonObject = functools.reduce(merged, (yaml.safe_load(data[name]) for name in sorted(data)))
    return read


def one(objects: dict[Id, JsonObject], kind: str, name: str = MANAGER) -> JsonObject:
    """Return the only object of that kind and name, whatever its namespace."""
    (found,) = (obj for (its_kind, _, its_name), obj in objects.items() if (its_kind, its_name) == (kind, name))
    return found


def strings(tree: Any) -> list[str]:
    """Return every text that is anywhere in a tree, keys as well."""
    if isinstance(tree, dict):
        return [text for pair in tree.items() for each in pair for text in strings(each)]
    if isinstance(tree, list):
        return [text for each in tree for text in strings(each)]
    return [tree] if isinstance(tree, str) else []


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
