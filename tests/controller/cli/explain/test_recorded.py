"""Jobs that are gone, and of which the history of a manager still tells."""

import argparse
import json
from collections.abc import Mapping

import pytest
from support.devcluster.faultycluster import FaultyCluster
from support.history import record
from support.team import Team

from trainmaster.controller.cli.explain import command
from trainmaster.controller.cli.history import sources
from trainmaster.controller.cli.history.sources import SourceError
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.history.record import JobRecord


class Manager:
    """A manager that has recorded one job, or refuses to tell."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses

    async def find(self, parameters: Mapping[str, str]) -> list[JobRecord]:
        if self.refuses:
            raise SourceError("the token is not good")
        assert parameters["limit"] == "1"
        known = record(name="gone", namespace="research", result="Failed", cause="OutOfMemory", exit_code=137)
        return [known] if (parameters["name"], parameters["namespace"]) == ("gone", "research") else []

    async def get(self, _uid: str) -> JobRecord | None:
        return None


async def explained(mine: Team, name: str, output: str = "text") -> int:
    arguments = argparse.Namespace(job=name, namespace=mine.name, kubeconfig=None, output=output)
    return await command._explain(mine.client, arguments)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    found = Manager()

    async def of_cluster(*_: object, **__: object) -> Manager:
        return found

    monkeypatch.setattr(sources, "of_cluster", of_cluster)
    return found


async def test_the_history_tells_of_a_job_that_is_gone(
    quiet: tuple[Team, FaultyCluster], manager: Manager, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, _ = quiet
    assert await explained(mine, "gone") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["TrainJob research/gone: Failed (it is deleted)", "  it is gone, and no event tells more"]
    assert "history:" in lines
    assert any(line.split() == ["State:", "Failed", "(OutOfMemory)"] for line in lines)
    assert await explained(mine, "gone", "json") == 0
    assert json.loads(capsys.readouterr().out)["history"]["exitCode"] == 137

    with pytest.raises(Rejected, match="no job 'other' in namespace research"):
        await explained(mine, "other")
    manager.refuses = True
    with pytest.raises(Rejected, match="no job 'gone' in namespace research"):
        await explained(mine, "gone")
