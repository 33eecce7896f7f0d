"""Fixtures of the embedded cluster: a server, a cluster driven step by step, a directory for the command line."""

from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path

import pytest
import yaml
from support.commands import trainmaster
from support.devcluster.envtest import Environment, start_environment
from support.devcluster.stepper import Stepper

from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
async def devcluster_server(tmp_path: Path) -> AsyncIterator[Environment]:
    """An API server over HTTPS with the built-in kinds and the usual namespaces, without controllers and kubelet."""
    async with start_environment(tmp_path) as served:
        yield served


@pytest.fixture
async def cluster() -> Stepper:
    """A cluster that is driven step by step, with a namespace to work in."""
    stepper = Stepper()
    await stepper.namespace("default")
    return stepper


@pytest.fixture(scope="session")
def jobset_definition() -> JsonObject:
    """The definition of JobSets."""
    path = resources.files("trainmaster.devcluster.crds") / "jobset.x-k8s.io_jobsets.yaml"
    loaded: JsonObject = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    return loaded


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Path]:
    """A working directory in which whatever was started in the background is stopped afterwards."""
    yield tmp_path
    if (tmp_path / ".trainmaster").is_dir():
        down = await trainmaster("cluster", "down", cwd=tmp_path)
        assert down.code == 0, down.err
