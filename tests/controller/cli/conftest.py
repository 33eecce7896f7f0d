"""What commands talk to."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import Ran
from support.devcluster.faultycluster import FaultyCluster
from support.team import Team, quiet_team
from support.team import team as namespace_of

from trainmaster.controller.cli import main
from trainmaster.devcluster.crds.install import install_definitions

_numbers = itertools.count(1)


@pytest.fixture
async def mine(cluster_home: Path, tmp_path: Path) -> AsyncIterator[Team]:
    """A namespace of its own for each test, of a whole cluster."""
    async with namespace_of(
        cluster_home / ".trainmaster/kubeconfig", f"of-commands-{next(_numbers)}", tmp_path
    ) as made:
        yield made


@pytest.fixture
async def quiet(tmp_path: Path) -> AsyncIterator[tuple[Team, FaultyCluster]]:
    """A namespace of an API server on which nobody works, and that server: jobs stay as the test leaves them."""
    async with quiet_team(tmp_path) as found:
        yield found


@pytest.fixture
def team(quiet: tuple[Team, FaultyCluster]) -> Team:
    """The namespace alone."""
    return quiet[0]


@pytest.fixture
async def both(quiet: tuple[Team, FaultyCluster]) -> tuple[Team, FaultyCluster]:
    """The same, of a server that serves some kinds of `kubeflow.org/v1` as well."""
    _, cluster = quiet
    await install_definitions(cluster.api, ("kubeflow.org_pytorchjobs.yaml", "kubeflow.org_tfjobs.yaml"))
    return quiet


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Ran:
    """A command, run in this process."""

    def run(*arguments: str, code: int = 0) -> Any:
        assert main(arguments) == code
        return capsys.readouterr()

    return run
