"""Exec plugins: when they run, what they get, and how their errors read."""

import asyncio
import datetime as dt
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.commands import eventually
from support.kubeconfigs import write_kubeconfig
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.auth.exec import PLUGIN_TIMEOUT
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.config import ConfigurationError

pytestmark = pytest.mark.nightly


API = "client.authentication.k8s.io/v1"


def plugin(tmp_path: Path, script: str, **more: Any) -> dict[str, Any]:
    """A user with a plugin, which is a script."""
    (tmp_path / "plugin").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "plugin").chmod(0o755)
    return {"exec": {"command": "./plugin", "apiVersion": API, **more}}


def exec_plugin(tmp_path: Path, *, expires: dt.datetime | None) -> dict[str, Any]:
    """A plugin that counts its runs in its tokens."""
    status = {} if expires is None else {"expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}
    answer = json.dumps({"apiVersion": API, "kind": "ExecCredential", "status": {"token": "run-N", **status}})
    return plugin(
        tmp_path,
        f"echo x >> {tmp_path}/runs\nn=$(wc -l < {tmp_path}/runs | tr -d ' ')\n"
        f'cat <<EOF | sed "s/run-N/run-$n/"\n{answer}\nEOF',
    )


async def test_exec_plugin_runs_again_before_its_token_expires(tmp_path: Path) -> None:
    clock = VirtualClock()
    path = write_kubeconfig(tmp_path / "k", user=exec_plugin(tmp_path, expires=clock.now() + dt.timedelta(minutes=10)))
    config = await load_config(kubeconfig=path, clock=clock)
    clock.step(7 * 60)
    assert await config.headers() == {"Authorization": "Bearer run-1"}
    clock.step(2 * 60)
    assert await config.headers() == {"Authorization": "Bearer run-2"}


async def test_exec_plugin_without_expiry_runs_again_only_after_a_refusal(tmp_path: Path) -> None:
    clock = VirtualClock()
    path = write_kubeconfig(tmp_path / "k", user=exec_plugin(tmp_path, expires=None))
    config = await load_config(kubeconfig=path, clock=clock)
    clock.step(3600)
    assert await config.headers() == {"Authorization": "Bearer run-1"}
    assert await config.credentials.renew()
    assert await config.headers() == {"Authorization": "Bearer run-2"}


async def test_exec_plugin_runs_once_for_all_requests_that_were_refused(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "k", user=exec_plugin(tmp_path, expires=None))
    config = await load_config(kubeconfig=path, clock=VirtualClock())
    assert await asyncio.gather(*[config.credentials.renew() for _ in range(20)]) == [True] * 20
    assert not await config.credentials.renew()
    assert (tmp_path / "runs").read_text().count("x") == 2


class Noting(VirtualClock):
    """A clock that notes which limits were set."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[float] = []

    def timeout(self, seconds: float) -> Any:
        self.limits.append(seconds)
        return super().timeout(seconds)


async def test_exec_plugin_that_hangs_is_killed(tmp_path: Path) -> None:
    clock = Noting()
    user = plugin(tmp_path, f"echo $$ > {tmp_path}/pid.part; mv {tmp_path}/pid.part {tmp_path}/pid\nexec sleep 3600")
    loading = asyncio.create_task(load_config(kubeconfig=write_kubeconfig(tmp_path / "k", user=user), clock=clock))
    await eventually(lambda: PLUGIN_TIMEOUT in clock.limits and (tmp_path / "pid").exists())
    await clock.advance(PLUGIN_TIMEOUT)
    with pytest.raises(ConfigurationError, match=r"exec plugin .*plugin gave no answer within 60 s"):
        await loading
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo no login >&2; exit 3", "failed with code 3: no login"),
        ("echo surprise", "printed no valid ExecCredential"),
        ('echo \'{"apiVersion": "v1", "kind": "Pod", "status": {}}\'', "printed a Pod of v1"),
        (
            'echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {}}\'',
            "neither a token nor a certificate",
        ),
    ],
)
async def test_exec_plugin_that_gives_no_credentials(tmp_path: Path, script: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        await load_config(kubeconfig=write_kubeconfig(tmp_path / "k", user=plugin(tmp_path, script)))


async def test_exec_plugin_is_told_what_it_asks_for(tmp_path: Path) -> None:
    """The version, that nobody can answer, and on demand the cluster."""
    user = plugin(
        tmp_path,
        f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info\n'
        'echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        ' "status": {"token": "\'"$GREETING-$1"\'"}}\'',
        args=["you"],
        env=[{"name": "GREETING", "value": "hello"}],
        interactiveMode="Never",
        provideClusterInfo=True,
    )
    config = await load_config(kubeconfig=write_kubeconfig(tmp_path / "k", user=user))
    assert await config.headers() == {"Authorization": "Bearer hello-you"}
    assert json.loads((tmp_path / "info").read_text())["spec"] == {
        "interactive": False,
        "cluster": {"server": "http://one:8080"},
    }


async def test_exec_plugin_that_is_missing(tmp_path: Path) -> None:
    user = {"exec": {"command": "/does/not/exist", "apiVersion": API, "installHint": "pip install it"}}
    with pytest.raises(ConfigurationError, match=r"/does/not/exist cannot be run: No such file.*; pip install it"):
        await load_config(kubeconfig=write_kubeconfig(tmp_path / "k", user=user))
