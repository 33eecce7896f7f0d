"""A whole cluster whose disk is full: it refuses changes, runs on, and goes on when there is space."""

import asyncio
import json
import re
import shlex
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.commands import TIMEOUT, Finished, run_program
from support.machine import FOUND, needs_namespaces

pytestmark = [pytest.mark.nightly, needs_namespaces]

PODS = "/api/v1/namespaces/default/pods"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
_UNSHARE = ["unshare", "-m", *(["-Ur"] if FOUND.user_namespace else [])]
_BLOCK = 1 << 16


class SmallDisk:
    """A cluster in a mount namespace of its own, in which its directory is a small tmpfs."""

    def __init__(self, process: asyncio.subprocess.Process, place: Path) -> None:
        self.process = process
        self._place = place
        self._root = Path(f"/proc/{process.pid}/root{place}")
        self.state = self._root / ".trainmaster"
        self._filler = self._root / "filler"
        self._session: aiohttp.ClientSession | None = None

    async def command(self, *arguments: str) -> Finished:
        """Run `trainmaster` where the cluster runs."""
        program = shlex.join([sys.executable, "-m", "trainmaster.controller.cli", *arguments])
        enter = ["nsenter", "-t", str(self.process.pid), "-m", *(["-U"] if FOUND.user_namespace else [])]
        process = await asyncio.create_subprocess_exec(
            *(*enter, "sh", "-c", f"cd {self._place} && exec {program}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(TIMEOUT):
            out, err = await process.communicate()
        assert process.returncode is not None
        return Finished(process.returncode, out.decode(), err.decode())

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Make a request as the administrator."""
        if self._session is None:
            token = (self.state / "token").read_text()
            context = ssl.create_default_context(cafile=str(self.state / "pki" / "ca.crt"))
            self._session = aiohttp.ClientSession(
                json.loads((self.state / "cluster.json").read_text())["server"],
                connector=aiohttp.TCPConnector(ssl=context),
                headers={"Authorization": f"Bearer {token}"},
            )
        async with self._session.request(method, path, json=body) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def fill(self) -> None:
        """Take all space that is left."""
        with self._filler.open("wb", buffering=0) as filler:
            for size in (_BLOCK, 1):
                try:
                    while True:
                        filler.write(b"x" * size)
                except OSError:
                    continue

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink()

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait until a condition holds, which may be awaited; the cluster must live as long."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                assert self.process.returncode is None, "the cluster ended"
                result = holds()
                if await result if asyncio.iscoroutine(result) else result:
                    return
                await asyncio.sleep(0.05)

    async def phase_is(self, name: str, phase: str) -> bool:
        status, pod = await self.request("GET", f"{PODS}/{name}")
        return bool(status == 200 and pod["status"].get("phase") == phase)

    async def answers(self, code: int) -> bool:
        return (await self.request("GET", "/readyz"))[0] == code


@asynccontextmanager
async def small_disk(place: Path, *arguments: str) -> AsyncIterator[SmallDisk]:
    """Start a cluster on a disk of 16 MiB."""
    program = shlex.join([sys.executable, "-m", "trainmaster.controller.cli", "cluster", "up", *arguments])
    mount = f"mount -t tmpfs -o size=16m tmpfs {place} && cd {place} && exec {program}"
    process = await asyncio.create_subprocess_exec(
        *(*_UNSHARE, "sh", "-c", mount),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    disk = SmallDisk(process, place)
    try:
        await disk.until((disk.state / "cluster.json").exists)
        yield disk
    finally:
        await disk.close()
        if process.returncode is None:
            process.kill()
        await process.communicate()


def pod(name: str, script: str) -> dict[str, Any]:
    container = {"name": "c", "image": "none", "command": ["sh", "-c", script]}
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}


async def test_a_full_disk_refuses_changes_and_ends_neither_the_cluster_nor_its_pods(tmp_path: Path) -> None:
    """Its manager, its logs, its volumes and what its pods print are on that disk as well."""
    gate = tmp_path / "gate"
    place = tmp_path / "disk"
    place.mkdir()
    async with small_disk(place) as disk:
        chatty = "while :; do echo $(seq 200); done"
        assert (await disk.request("POST", PODS, pod("chatty", chatty)))[0] == 201
        assert (await disk.request("POST", PODS, pod("short", f"until test -e {gate}; do sleep 0.1; done")))[0] == 201
        await disk.until(lambda: disk.phase_is("chatty", "Running"))
        await disk.until(lambda: disk.phase_is("short", "Running"))
        disk.fill()
        number = 0

        async def refused() -> bool:
            nonlocal number
            number += 1
            # Less than a pod has: what is left must not be enough for one.
            body = {"metadata": {"name": f"a{number}"}, "data": {"x": "y" * 100}}
            return (await disk.request("POST", CONFIGMAPS, body))[0] == 507

        await disk.until(refused)
        status, body = await disk.request("POST", CONFIGMAPS, {"metadata": {"name": "b"}, "data": {"x": "y" * 10_000}})
        assert (status, body["kind"], body["reason"], body["code"]) == (507, "Status", "InsufficientStorage", 507)
        assert body["message"] == (
            f"the cluster cannot write {place}/.trainmaster/journal: No space left on device; free some space there, "
            "and it takes changes again by itself; nothing that it acknowledged is lost"
        )
        assert (await disk.request("GET", f"{CONFIGMAPS}/b"))[0] == 404
        assert len((await disk.request("GET", PODS))[1]["items"]) == 2
        assert (await disk.request("GET", "/api/v1/events"))[0] == 200
        assert (await disk.request("GET", "/livez"))[0] == 200
        status, text = await disk.request("GET", "/readyz")
        assert status == 500
        assert "[-]store failed: changes cannot be stored: No space left on device\n" in text
        told = await disk.command("cluster", "status")
        assert told.code == 1
        assert re.search(r"problem: +changes cannot be stored: No space left on device\n +what next: ", told.out)
        gate.touch()
        # The kubelet tries to write the end of the pod once a second, and goes on trying.
        again = await disk.request("PUT", f"{PODS}/short/status", {"metadata": {"name": "short"}})
        assert again[0] >= 400

        disk.free()
        await disk.until(lambda: disk.answers(200))
        await disk.until(lambda: disk.phase_is("short", "Succeeded"))
        assert (await disk.request("POST", CONFIGMAPS, {"metadata": {"name": "b"}}))[0] == 201
        assert await disk.phase_is("chatty", "Running")
        assert (await disk.request("DELETE", f"{PODS}/chatty?gracePeriodSeconds=0"))[0] == 200
        told = await disk.command("cluster", "status")
        assert (told.code, "problem" in told.out) == (0, False), told.out
        log = (disk.state / "cluster.log").read_text()
        assert log.count("cannot be written: No space left on device") <= 1
        assert log.count("can be written again; until now: No space left on device") == 1
        disk.process.terminate()
        async with asyncio.timeout(TIMEOUT):
            _, err = await disk.process.communicate()
        assert (disk.process.returncode, err) == (0, b"")


@pytest.mark.parametrize("kilobytes", [0, 16, 64, 128])
async def test_a_start_on_a_full_disk_says_so_in_one_line(tmp_path: Path, kilobytes: int) -> None:
    """Wherever on the way the space ends."""
    place = tmp_path / "disk"
    place.mkdir()
    program = shlex.join([sys.executable, "-m", "trainmaster.controller.cli", "cluster", "up"])
    mount = (
        f"mount -t tmpfs -o size=1m tmpfs {place} && cd {place} && "
        f"(dd if=/dev/zero of=filler bs=1k count={1024 - kilobytes} 2>&- || true) && exec {program}"
    )
    ended = await run_program(*_UNSHARE, "sh", "-c", mount)
    assert (ended.code, ended.out) == (1, "")
    lines = ended.err.splitlines()
    assert len(lines) == 1, ended.err
    assert "No space left on device" in lines[0]
    assert str(place) in lines[0]
