"""What shells get to complete, and real shells at TAB."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.commands import Finished, trainmaster
from support.team import Team, quiet_team
from support.terminals import Terminal

from trainmaster.controller.cli.root import COMMANDS

pytestmark = pytest.mark.nightly

PROGRAM = Path(sys.executable).parent / "trainmaster"


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Team]:
    """A namespace of an API server with the jobs `digits` and `digits-2`, and a directory with some files."""
    async with quiet_team(tmp_path) as (team, _):
        (team.directory / "folder").mkdir()
        (team.directory / "digits.yaml").write_text("kind: TrainJob\n")
        for name in ("digits", "digits-2"):
            await team.submit(name, "true")
        yield team


async def completed(line: str, directory: Path, **environment: str) -> list[str]:
    """What a shell gets to complete a line."""
    answer = directory / "answer"
    answer.touch()
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": "bash",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    assert await trainmaster(cwd=directory, **asked, **environment) == Finished(0, "", "")
    found = [word.strip() for word in answer.read_text().split("\n") if word.strip()]
    answer.unlink()
    return found


async def test_commands_options_and_choices_need_no_cluster(tmp_path: Path) -> None:
    # Commands options and choices need no cluster. Of names of commands the modules are not even imported.
    assert set(await completed("trainmaster ", tmp_path)) == {*COMMANDS, "cluster"}
    assert set(await completed("trainmaster re", tmp_path)) == {"render", "restart", "resume"}
    assert {"--rank", "--all", "--follow", "--namespace"} <= set(await completed("trainmaster logs --", tmp_path))
    assert set(await completed("trainmaster list -o ", tmp_path)) == {"json", "name", "wide", "yaml"}
    assert await completed("trainmaster cluster do", tmp_path) == ["down"]
    assert set(await completed("trainmaster completion ", tmp_path)) == {"bash", "fish", "zsh"}
    # Files are offered where files are expected.
    (tmp_path / "job.yaml").touch()
    (tmp_path / "folder").mkdir()
    assert {"folder/", "job.yaml"} <= set(await completed("trainmaster validate -f ", tmp_path))
    assert await completed("trainmaster run jo", tmp_path) == ["job.yaml"]
    assert await completed("trainmaster cluster status --state-dir ", tmp_path) == ["folder/"]
    assert await completed("trainmaster logs --tail ", tmp_path) == []
    # Without a cluster there are no names and no words.
    assert await completed("trainmaster logs ", tmp_path) == []
    assert await completed("trainmaster logs ", tmp_path, KUBECONFIG="/nowhere") == []
    # A shell that is unknown is refused.
    done = await trainmaster("completion", "tcsh", cwd=tmp_path)
    assert done.code == 2, done.err
    assert "invalid choice: 'tcsh'" in done.err


async def test_names_come_from_the_cluster_of_the_command(team: Team) -> None:
    async def asked(line: str) -> list[str]:
        return await completed(line, team.directory, KUBECONFIG=str(team.kubeconfig))

    assert await asked("trainmaster logs -n research ") == ["digits", "digits-2"]
    assert await asked("trainmaster attach -n research digits-") == ["digits-2"]
    assert await asked("trainmaster delete -n research digits ") == ["digits-2"]
    assert await asked("trainmaster logs ") == []  # of the namespace of the kubeconfig
    assert await asked("trainmaster logs -n res") == ["research"]
    named = f"trainmaster logs --kubeconfig {team.kubeconfig} -n research "
    assert await completed(named, team.directory) == ["digits", "digits-2"]


SETUP = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(trainmaster completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -u -D; eval "$(trainmaster completion zsh)"'),
    "fish": (["fish", "--no-config", "-i"], "trainmaster completion fish | source"),
}


@pytest.mark.parametrize(
    "shell",
    [
        pytest.param(
            shell, marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"there is no {shell} on PATH")
        )
        for shell in SETUP
    ],
)
async def test_a_shell_completes_at_tab(team: Team, shell: str) -> None:
    """What TAB completes is run: only the whole of it makes the command print what it does."""
    lines = {
        "trainmaster complet\tba\t | tail -n 3; echo prin''ted\n": "printed",
        "trainmaster list -n res\t-o na\t\n": "trainjob.trainer.kubeflow.org/digits-2\r\n",
        "trainmaster suspend -n research digits-\t\n": "TrainJob research/digits-2 suspended",
        "trainmaster validate -f dig\t\n": "digits.yaml:1: error: apiVersion is missing",
    }

    def type_them() -> None:
        command, setup = SETUP[shell]
        own = {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "HOME": str(team.directory), "TERM": "xterm"}
        own |= {"KUBECONFIG": str(team.kubeconfig)}
        with Terminal() as terminal, terminal.program(*command, cwd=team.directory, environment=own):
            terminal.press(f"{setup}; echo 'set' up\n")
            terminal.wait_for("set up\r\n")
            for line, answer in lines.items():
                terminal.press(line)
                terminal.wait_for(answer)

    await asyncio.to_thread(type_them)  # the API server is in the loop of the test
