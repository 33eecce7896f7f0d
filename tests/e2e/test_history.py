"""The history of an embedded cluster, as users see it: over a manager that is killed, and without any manager."""

import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml
from support.commands import client_of, eventually, processes_of, trainmaster
from support.training import apply_runtime, ended, runtime, trainjob, until

from trainmaster.controller.resources import TRAINJOBS

CONFIGURATION = {
    "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
    "kind": "Configuration",
    "history": {"enabled": True, "file": "history.sqlite"},
    "web": {"enabled": True},
}


async def test_the_history_survives_jobs_and_managers(tmp_path: Path) -> None:
    configuration = tmp_path / "of-the-manager.yaml"
    file = tmp_path / "history.sqlite"
    document = CONFIGURATION | {"history": {"enabled": True, "file": str(file)}}
    configuration.write_text(yaml.safe_dump(document))
    up = await trainmaster("cluster", "up", "--detach", "--config", str(configuration), cwd=tmp_path)
    assert (up.code, up.err) == (0, "")

    async def history(*words: str) -> dict[str, Any]:
        found = await trainmaster("history", *words, "-o", "json", cwd=tmp_path)
        assert found.code == 0, found.err
        return {each["name"]: each for each in json.loads(found.out)["items"]}

    try:
        async with client_of(tmp_path / ".trainmaster" / "kubeconfig") as client:
            await apply_runtime(client, runtime())
            for name, script in (("good", "true"), ("bad", "exit 3"), ("endless", "sleep 600")):
                job = trainjob(name, trainer={"command": ["sh", "-c", script]})
                await client.create(TRAINJOBS, job, namespace="default")
            await ended(client, "good")
            await ended(client, "bad")
            await until(lambda: _has(history, {"good", "bad"}))
            found = await history()
            assert (found["good"]["result"], found["bad"]["result"], found["bad"]["exitCode"]) == (
                "Succeeded",
                "Failed",
                3,
            )
            assert found["bad"]["cause"] == "ContainerFailed"

            # Killed in the middle of its work; what happens until another one runs is not seen by anybody.
            (manager,) = processes_of(str(tmp_path / ".trainmaster" / "manager.yaml"))
            os.kill(manager, signal.SIGKILL)
            await client.delete(TRAINJOBS, "default", "endless")
            await client.delete(TRAINJOBS, "default", "good")
            await until(lambda: _has(history, {"good", "bad", "endless"}))
            found = await history()
            assert (found["endless"]["result"], found["good"]["result"]) == ("Deleted", "Succeeded")
            assert set(await history("--result", "Failed", "--since", "1h")) == {"bad"}
            told = await trainmaster("history", "endless", cwd=tmp_path)
            assert "Job:" in told.out
            assert "deleted" in told.out
    finally:
        down = await trainmaster("cluster", "down", cwd=tmp_path)
    assert down.code == 0, down.err
    await eventually(lambda: not processes_of(str(tmp_path / ".trainmaster")))

    # Without a cluster the file tells the same.
    assert (await history("--file", str(file))).keys() == {"good", "bad", "endless"}


async def _has(history: Callable[[], Awaitable[dict[str, Any]]], names: set[str]) -> bool:
    """Whether these jobs are recorded; not while no manager answers."""
    try:
        return set(await history()) == names
    except AssertionError:
        return False
