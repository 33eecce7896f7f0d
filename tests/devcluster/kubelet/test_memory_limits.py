"""Containers that use more memory than their limit are killed, as by the kernel's OOM killer (Linux)."""

import sys
from typing import Any

import pytest
from support.node import Node, sh, terminated

from trainmaster.devcluster.kubelet.kubelet import Kubelet

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is counted by /proc"),
]

PYTHON = sys.executable
LIMIT: dict[str, Any] = {"resources": {"limits": {"memory": "80Mi"}}}
GREEDY = f"exec {PYTHON} -c 'held = bytearray(200 << 20); import time; time.sleep(60)'"
SHARING = """
import os, time
held = bytearray(50 << 20)
for _ in range(3):
    if os.fork() == 0:
        time.sleep(float(os.environ["SECONDS"]))
        os._exit(0)
for _ in range(3):
    os.wait()
"""


async def test_a_container_over_its_limit_is_killed(node: Node, kubelet: Kubelet) -> None:
    await node.create(sh(GREEDY, **LIMIT))
    ended = terminated(await node.phase("Failed"))
    assert (ended["exitCode"], ended["reason"], ended["signal"]) == (137, "OOMKilled", 9)


async def test_all_processes_of_a_container_count_and_all_of_them_end(node: Node, kubelet: Kubelet) -> None:
    half = f"{PYTHON} -c 'held = bytearray(50 << 20); import time; time.sleep(60)'"
    await node.create(sh(f"{half} & {half} & wait", **LIMIT))
    assert terminated(await node.phase("Failed"))["reason"] == "OOMKilled"


async def test_what_processes_share_counts_once(node: Node, kubelet: Kubelet) -> None:
    """A loader of data forks workers: four processes that share 50 MiB do not use 200."""
    env = [{"name": "SECONDS", "value": "0.6"}]
    await node.create({"name": "c", "image": "any", "command": [PYTHON, "-c", SHARING], "env": env, **LIMIT})
    assert terminated(await node.phase("Succeeded"))["reason"] == "Completed"


async def test_a_container_without_a_limit_has_none(node: Node, kubelet: Kubelet) -> None:
    await node.create(sh(f"exec {PYTHON} -c 'held = bytearray(200 << 20); import time; time.sleep(0.5)'"))
    assert terminated(await node.phase("Succeeded"))["exitCode"] == 0


async def test_a_restart_begins_anew_and_the_last_state_tells(node: Node, kubelet: Kubelet) -> None:
    script = f"test -e done && exit 0; touch done; {GREEDY}"
    await node.create(sh(script, **LIMIT), restartPolicy="OnFailure")
    assert terminated(await node.phase("Succeeded"), state="lastState")["reason"] == "OOMKilled"
