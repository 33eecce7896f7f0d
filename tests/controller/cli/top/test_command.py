"""`trainmaster top`, on an API server on which nobody works, and on a whole cluster."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
from support.commands import trainmaster
from support.devcluster.faults import Refuse
from support.devcluster.faultycluster import FaultyCluster
from support.team import Team
from support.terminals import Terminal
from support.training import until

from trainmaster.controller.resources import TRAINJOBS

pytestmark = pytest.mark.nightly


async def test_once_and_for_programs(both: tuple[Team, FaultyCluster]) -> None:
    team, cluster = both
    await team.submit("mnist", "true", nodes=2)
    with (
        cluster.faults.add(Refuse(403, message="eve cannot list nodes"), resource="nodes"),
    ):
        printed = await team.cli("top")
        assert (printed.code, printed.err) == (0, "")
        lines = printed.out.splitlines()
        assert "namespace research" in lines[0]
        assert "jobs     1: 1 waiting" in lines
        assert "nodes    not known" in lines
        assert any(line.startswith("not read: nodes: ") and "eve cannot list nodes" in line for line in lines)
        assert lines[-1].split()[:4] == ["TrainJob", "mnist", "Waiting", "0/2"]

    await team.submit("llama", "true")
    by_name = json.loads((await team.cli("top", "-o", "json", "--sort", "name")).out)
    assert [job["name"] for job in by_name["jobs"]] == ["llama", "mnist"]
    told = json.loads((await team.cli("top", "-A", "-o", "json", "--filter", "MNI running")).out)
    assert told["jobs"] == []  # words are looked for in states, which this one is not
    told = json.loads((await team.cli("top", "-A", "-o", "json", "--filter", "MNI waiting")).out)
    assert told["namespace"] is None
    (job,) = told["jobs"]
    assert (job["name"], job["state"], job["attention"], job["wantedNodes"]) == ("mnist", "Waiting", "waiting", 2)
    assert told["nodes"] == []
    assert told["unread"] == []
    assert told["managersNote"].startswith("none is installed")


async def test_jobs_that_may_not_be_read_or_no_cluster_are_an_error(
    both: tuple[Team, FaultyCluster], tmp_path: Path
) -> None:
    team, cluster = both
    with cluster.faults.add(Refuse(403, message="eve cannot list trainjobs"), verb="list"):
        refused = await team.cli("top", "--once")
    assert refused.code == 1
    assert "eve cannot list trainjobs" in refused.err
    assert "Traceback" not in refused.err
    failed = await trainmaster("top", "--once", cwd=tmp_path)
    assert failed.code == 1, failed.err
    assert "no cluster" in failed.err


async def test_an_embedded_cluster_tells_of_its_manager(cluster_home: Path, tmp_path: Path) -> None:
    kubeconfig = cluster_home / ".trainmaster/kubeconfig"
    told = json.loads((await trainmaster("top", "-o", "json", "--kubeconfig", str(kubeconfig), cwd=tmp_path)).out)
    (manager,) = told["managers"]
    assert (manager["name"], manager["ready"], manager["leads"]) == ("embedded", True, True)
    (node,) = told["nodes"]
    assert node["status"] == "Ready"


async def test_on_a_terminal_it_is_a_screen_that_follows_the_cluster(both: tuple[Team, FaultyCluster]) -> None:
    team, cluster = both
    await team.submit("mnist", "true")
    command = [sys.executable, "-m", "trainmaster.controller.cli", "top", *team.options]
    with Terminal(110, 24) as terminal, terminal.program(*command) as program:

        async def shows(text: str) -> None:
            await until(lambda: asyncio.to_thread(terminal.shows, text))

        await shows("mnist  Waiting")
        assert not terminal.cursor_is_shown
        status = {"progressPercentage": 40, "estimatedRemainingSeconds": 90, "lastUpdatedTime": "2026-01-01T00:00:00Z"}
        await team.client.patch(
            TRAINJOBS, team.name, "mnist", {"status": {"trainerStatus": status}}, subresource="status"
        )
        await shows("40%       1:30")
        with cluster.faults.add(Refuse(403, message="eve cannot list trainjobs"), resource="trainjobs"):
            await shows("this may be out of date: ")
            assert terminal.shows("mnist  Waiting")
        await team.submit("later", "true")
        await shows("jobs     2: 2 waiting")
        terminal.press("\x03")
        assert await asyncio.to_thread(program.wait) == 130
        assert terminal.cursor_is_shown


async def test_nothing_that_strangers_wrote_acts_upon_the_terminal(both: tuple[Team, FaultyCluster]) -> None:
    team, _ = both
    await team.submit("odd", "true")
    conditions = [{"type": "Failed", "status": "True", "reason": "Odd", "lastTransitionTime": "2026-01-01T00:00:00Z",
                   "message": "\x9b2J\x1b[2J\x1b]0;PWN\x07\u202e told"}]  # fmt: skip
    await team.client.patch(TRAINJOBS, team.name, "odd", {"status": {"conditions": conditions}}, subresource="status")
    command = [sys.executable, "-m", "trainmaster.controller.cli", "top", *team.options]
    with Terminal(110, 24) as terminal, terminal.program(*command) as program:
        await until(lambda: asyncio.to_thread(terminal.shows, "told"))
        program.signal(signal.SIGTERM)
        assert await asyncio.to_thread(program.wait) == 128 + signal.SIGTERM
        assert terminal.cursor_is_shown
        for each in ("\x9b", "\x1b[2J", "PWN\x07", "\u202e"):
            assert each not in terminal.output
