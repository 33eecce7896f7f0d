"""Programs that are executed in a running container: their streams, their terminal, their end."""

import asyncio
from pathlib import Path

import pytest
from support.commands import eventually
from support.node import Node, alive, sh

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.handlers.pod_exec import STDERR, STDOUT, Execution
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.kubelet.kubelet import Kubelet

pytestmark = pytest.mark.nightly

LARGE = 3_000_000


@pytest.fixture
async def running(node: Node, kubelet: Kubelet) -> Kubelet:
    await node.create(sh("sleep 600", env=[{"name": "GREETING", "value": "hello"}]))
    await node.phase("Running")
    return kubelet


async def printed(execution: Execution) -> tuple[bytes, bytes]:
    texts = {STDOUT: b"", STDERR: b""}
    async for channel, data in execution.output():
        texts[channel] += data
    return texts[STDOUT], texts[STDERR]


async def test_output_errors_and_exit_code(node: Node, running: Kubelet) -> None:
    argv = ["sh", "-c", "echo $GREETING; echo sorry >&2; exit 3"]
    async with running.execute(node.api.get(PODS, "default", "p"), "c", argv, stdin=False, tty=False) as execution:
        assert await printed(execution) == (b"hello\n", b"sorry\n")
    assert execution.code == 3


async def test_what_is_written_is_read_to_its_end(node: Node, running: Kubelet) -> None:
    pod = node.api.get(PODS, "default", "p")
    async with running.execute(pod, "c", ["cat"], stdin=True, tty=False) as execution, asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(printed(execution))
        for _ in range(LARGE // 1000):
            await execution.write(b"x" * 1000)
        await execution.close_input()
        assert await reading == (b"x" * LARGE, b"")
    assert execution.code == 0


async def test_a_terminal_has_a_size_and_is_that_of_the_program(node: Node, running: Kubelet) -> None:
    argv = ["sh", "-c", "test -t 0 && read line </dev/tty && stty size && echo $TERM"]
    async with running.execute(node.api.get(PODS, "default", "p"), "c", argv, stdin=True, tty=True) as execution:
        execution.resize(101, 33)
        await execution.write(b"go\n")
        output, errors = await printed(execution)
    assert (output.split(), errors) == ([b"go", b"33", b"101", b"xterm"], b"")


async def test_a_program_ends_with_whoever_wants_it(node: Node, running: Kubelet, tmp_path: Path) -> None:
    argv = ["sh", "-c", f"echo $$ > {tmp_path}/pid; sleep 600"]
    async with running.execute(node.api.get(PODS, "default", "p"), "c", argv, stdin=False, tty=False):
        pid = int(await eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    await eventually(lambda: not alive(pid))


async def test_what_cannot_be_started_says_why(node: Node, running: Kubelet) -> None:
    pod = node.api.get(PODS, "default", "p")
    async with running.execute(pod, "c", ["no-such-program"], stdin=True, tty=False) as execution:
        assert await printed(execution) == (b"", b"")
    assert (execution.code, execution.error) == (None, 'exec: "no-such-program": executable file not found in $PATH')


async def test_a_container_that_has_ended_runs_nothing(node: Node, kubelet: Kubelet) -> None:
    await node.create(sh("true"))
    pod = await node.phase("Succeeded")
    with pytest.raises(StatusError, match="container c of pod p does not run"):
        kubelet.execute(pod, "c", ["true"], stdin=False, tty=False)
