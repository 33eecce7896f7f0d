"""`trainmaster exec` and `trainmaster stack`, of pods that run as processes."""

import shutil
from pathlib import Path

import pytest
from support.commands import Finished, eventually, trainmaster
from support.kubectl import Kubectl
from support.team import Team

pytestmark = pytest.mark.nightly

RANK = "$JOB_COMPLETION_INDEX"
HANGS = """
import time

def wait_for_others():
    time.sleep(600)

wait_for_others()
"""


async def run_on_two_nodes(mine: Team, name: str, script: str, directory: Path) -> None:
    """Submit a job that does not end, and return when both of its pods run."""
    await mine.submit(name, f"touch {directory}/{name}{RANK}; {script}", nodes=2)
    await eventually(lambda: all((directory / f"{name}{rank}").exists() for rank in range(2)))


async def execute(mine: Team, job: str, *program: str, options: tuple[str, ...] = (), stdin: str = "") -> Finished:
    words = ("exec", job, *options, *mine.options, "--", *program)
    return await trainmaster(*words, cwd=mine.directory, stdin=stdin)


async def test_a_program_runs_in_the_container_of_a_rank(mine: Team, tmp_path: Path) -> None:
    await run_on_two_nodes(mine, "busy", "sleep 600", tmp_path)
    script = f"echo rank {RANK}; echo sorry >&2; exit 7"
    done = await execute(mine, "busy", "sh", "-c", script, options=("--rank", "1"))
    assert (done.code, done.out, done.err) == (7, "rank 1\n", "sorry\n")
    done = await execute(mine, "busy", "cat", options=("-i",), stdin="typed\n" * 20_000)
    assert (done.code, done.out) == (0, "typed\n" * 20_000)
    done = await execute(mine, "busy", "cat", stdin="typed\n")
    assert (done.code, done.out) == (0, "")


async def test_what_cannot_be_run_says_why(mine: Team, tmp_path: Path) -> None:
    await mine.submit("over", "true")
    await mine.condition("over", "Complete")
    done = await execute(mine, "over", "true")
    assert done.code == 2
    assert done.err.startswith("trainmaster: rank 0: nothing runs in pod over-node-0-0-")
    assert done.err.endswith(": its container node has ended (Completed, exit code 0)\n")
    done = await execute(mine, "over", "true", options=("--rank", "3"))
    assert "has ended (Complete), and has no rank 3; there are: rank 0\n" in done.err
    done = await mine.cli("stack", "over")
    assert (done.code, done.out) == (1, "")
    nothing, advice = done.err.splitlines()
    assert nothing.startswith("rank 0: nothing runs in pod over-node-0-0-")
    assert advice == f"  what next: {mine.advised('logs', 'over')} --all prints what they have written"
    await mine.submit("held", "true", suspend=True)
    assert "is suspended, and has no pods; `trainmaster resume held`" in (await mine.cli("stack", "held")).err
    assert "write the program behind --" in (await mine.cli("exec", "over", "true")).err
    assert "which program?" in (await mine.cli("exec", "over")).err
    await run_on_two_nodes(mine, "runs", "sleep 600", tmp_path)
    done = await execute(mine, "runs", "no-such-program")
    missing = 'exec: "no-such-program": executable file not found in $PATH'
    assert (done.code, done.err) == (1, f"error executing command in container: {missing}\n")
    done = await execute(mine, "runs", "true", options=("-c", "x"))
    assert "has no container 'x'; there are: node\n" in done.err


async def test_the_stack_of_every_rank(mine: Team, tmp_path: Path) -> None:
    """Of processes that a shell has started, too, and of no other job."""
    (tmp_path / "hangs.py").write_text(HANGS)
    await mine.submit("other", f"python {tmp_path}/hangs.py")
    await run_on_two_nodes(mine, "hangs", f"python {tmp_path}/hangs.py; true", tmp_path)

    async def stacks() -> str:
        done = await mine.cli("stack", "hangs")
        return done.out if done.out.count("wait_for_others (") == 2 else ""

    printed = await eventually(stacks)
    assert printed.count("wait_for_others (hangs.py:5)") == printed.count("Process ") == 2
    assert printed.startswith("rank 0 (pod hangs-node-0-0-")
    assert "\nrank 1 (pod hangs-node-0-1-" in printed
    done = await mine.cli("stack", "hangs", "--rank", "1")
    assert done.code == 0
    assert done.out.startswith("rank 1 (pod ")


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH")
async def test_kubectl_does_the_same(mine: Team, tmp_path: Path) -> None:
    await run_on_two_nodes(mine, "pods", "sleep 600", tmp_path)
    kubectl = Kubectl(mine.kubeconfig, tmp_path)
    pod = f"pod/{(await mine.pods('pods'))[0]['metadata']['name']}"
    assert await kubectl("exec", "-i", "-n", mine.name, pod, "--", "cat", stdin="typed\n") == "typed\n"
    assert "exit code 3" in await kubectl("exec", "-n", mine.name, pod, "--", "sh", "-c", "exit 3", code=3)
