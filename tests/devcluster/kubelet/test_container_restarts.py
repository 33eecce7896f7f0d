"""How containers end, and start again in their pods, as a kubelet tells it: codes, messages, counts and logs."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import TIMEOUT
from support.node import Node, sh, terminated

from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly

FALLBACK = {"terminationMessagePolicy": "FallbackToLogsOnError"}


async def message(node: Node, script: str, **container: Any) -> str | None:
    """Run a container to its end and give its termination message."""
    await node.create(sh(script, **container))
    pod = await node.reached(lambda pod: pod["status"].get("phase") in {"Failed", "Succeeded"})
    found: str | None = terminated(pod).get("message")
    return found


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo printed; exit 1", "printed\n"),
        ("echo printed", None),
        ("echo own > /dev/termination-log; echo printed; exit 1", "own\n"),
        (
            "i=0; while [ $i -lt 100 ]; do echo $i; i=$((i + 1)); done; exit 1",
            "".join(f"{i}\n" for i in range(20, 100)),
        ),
        ("printf '%03000d' 7; exit 1", "0" * 2047 + "7"),
        ("printf 'no newline'; kill -SEGV $$$$", "no newline"),
        ("exit 1", None),
    ],
)
async def test_the_end_of_the_log_stands_in_for_a_message_of_what_failed(
    node: Node, kubelet: Kubelet, script: str, expected: str | None
) -> None:
    """The last 80 lines, at most 2048 bytes, and only where the container wrote no message of its own."""
    assert await message(node, script, **FALLBACK) == expected


async def test_the_log_is_no_message_unless_that_is_asked_for(node: Node, kubelet: Kubelet) -> None:
    assert await message(node, "echo printed; exit 1") is None


async def test_a_message_has_4096_bytes_at_most(node: Node, kubelet: Kubelet) -> None:
    assert await message(node, "printf '%05000d' 7 > /dev/termination-log; exit 1") == "0" * 4096


# A dollar sign of a command is written twice.
@pytest.mark.parametrize(
    ("script", "code", "signal"),
    [
        ("exit 137", 137, 0),
        ("kill -KILL $$$$", 137, 9),
        ("kill -SEGV $$$$", 139, 11),
        ("kill -ABRT $$$$", 134, 6),
        ("kill -TERM $$$$", 143, 15),
        ("trap 'exit 0' TERM; kill -TERM $$$$", 0, 0),
        ("sh -c 'kill -KILL $$$$'; exit $?", 137, 0),
    ],
)
async def test_exit_codes_of_signals(node: Node, kubelet: Kubelet, script: str, code: int, signal: int) -> None:
    await node.create(sh(script))
    ended = terminated(await node.reached(lambda pod: pod["status"].get("phase") in {"Failed", "Succeeded"}))
    assert (ended["exitCode"], ended.get("signal", 0)) == (code, signal)
    assert ended["reason"] == ("Error" if code else "Completed")


async def test_a_restart_is_counted_when_it_happens(node: Node, tmp_path: Path) -> None:
    """While it waits, what ended is told as its last state already, by the number of the run that ended."""
    node.settings = replace(node.settings, restart_backoff=0.2)
    script = f"""
        echo x >> runs; n=$(wc -l < runs); echo run $n
        until test -e {tmp_path}/go-$((n - 1)); do sleep 0.02; done
        test $n -eq 3 || exit $((n + 10))
    """
    seen: list[JsonObject] = []
    async with node.running() as kubelet, asyncio.timeout(TIMEOUT), node.api.watch(PODS, since=None) as changes:
        await node.create(sh(script, **FALLBACK), restartPolicy="OnFailure")
        async for change in changes:
            status = (change.object or {}).get("status") or {}
            for shown in status.get("containerStatuses") or ():
                seen.append(shown)
                if "running" in shown["state"]:
                    (tmp_path / f"go-{shown['restartCount']}").touch()
            if status.get("phase") == "Succeeded":
                break
        logs = [await node.log(kubelet, previous=previous) for previous in (False, True)]
    waiting = [each for each in seen if each["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"]
    running = [each for each in seen if "running" in each["state"]]
    assert {each["restartCount"] for each in waiting} == {0, 1}
    for each in waiting:
        last = each["lastState"]["terminated"]
        assert (each["ready"], each["started"]) == (False, False)
        assert (last["exitCode"], last["message"]) == (11 + each["restartCount"], f"run {each['restartCount'] + 1}\n")
        assert last["containerID"] == each["containerID"]
    assert {each["restartCount"] for each in running} == {0, 1, 2}
    for each in running:
        last = each["lastState"].get("terminated", {})
        assert (each["ready"], each["started"]) == (True, True)
        assert last.get("exitCode") == (10 + each["restartCount"] if each["restartCount"] else None)
        assert last.get("containerID") != each["containerID"]
    ended = terminated(node.api.get(PODS, "default", "p"))
    assert "message" not in ended, "that of an earlier run is not that of this one"
    assert ended["containerID"].endswith("/c/2")
    assert logs == ["run 3\n", "run 2\n"]
