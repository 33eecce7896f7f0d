"""A cluster and managers as processes of their own, that tests kill, stop for a while and start again.

Their logs are files, so that no pipe fills up while nobody reads; they end with the process that started them, however
that ends.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import yaml
from support.commands import client_of
from support.rights import declare

from trainmaster.controller.configuration import parse_configuration
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.devcluster.crds.install import JOBSET_DEFINITIONS, TRAINER_DEFINITIONS, definition_file
from trainmaster.devcluster.settings import PARTS
from trainmaster.devcluster.state import StateDirectory
from trainmaster.runtime.yamltext import load_yaml

TIMEOUT = 60.0
"""Generous, since it only ends tests that hang anyway."""

_TOKEN_SECONDS = 24 * 3600
_SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", namespaced=True)
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)


class Program:
    """`trainmaster` with some arguments, as a process; it may be started again after it ended."""

    def __init__(self, *arguments: str, directory: Path, name: str) -> None:
        self._arguments = arguments
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None
        self.log = directory / f"{name}.output"
        """What all its runs wrote to their standard output and error."""

    async def start(self) -> None:
        """Start it."""
        assert self._process is None or self._process.returncode is not None, "it still runs"
        foreign = {"KUBECONFIG", "TRAINMASTER_HOME"}
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-P",
                    "-m",
                    "trainmaster.devcluster.manager.parent_death",
                    "trainmaster.controller.cli",
                ),
                *self._arguments,
                cwd=self._directory,
                env={key: value for key, value in os.environ.items() if key not in foreign},
                stdin=asyncio.subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._running.pid

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._running.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._running.send_signal(number)

    async def wait(self, *, timeout: float = TIMEOUT) -> int:
        """Wait for its end; returns the exit code."""
        async with asyncio.timeout(timeout):
            return await self._running.wait()

    async def kill(self) -> None:
        """End it without giving it a chance to do anything; harmless if it has ended."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    @property
    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "it was not started"
        return self._process


class ClusterProcess(Program):
    """An embedded cluster with some parts; it is started again at the same port."""

    def __init__(self, directory: Path, *, parts: frozenset[str] = frozenset()) -> None:
        self.state = StateDirectory(directory / "state")
        self.audit_log = directory / "audit.log"
        self.port = _own_port()
        """Where the API server is, in all runs: a cluster that chose by itself might find its port taken by another."""

        without = [part for part in PARTS if part not in parts]
        super().__init__(
            *("cluster", "up", "--state-dir", str(self.state.path), "--audit-log", str(self.audit_log)),
            *("--port", str(self.port)),
            *(("--without", ",".join(without)) if without else ()),
            directory=directory,
            name="cluster",
        )

    async def start(self) -> None:
        """Start it and wait until it serves."""
        await super().start()
        async with asyncio.timeout(TIMEOUT):
            while (record := self.state.read_record()) is None or record.pid != self.pid:
                assert self.code is None, self.log.read_text()
                await asyncio.sleep(0.02)

    def client(self) -> Any:
        """Open a client of the administrator; an async context manager."""
        return client_of(self.state.kubeconfig)


@asynccontextmanager
async def cluster_process(
    directory: Path, *, parts: frozenset[str] = frozenset()
) -> AsyncIterator[tuple[ClusterProcess, KubeClient]]:
    """Run a cluster with the definitions of Trainer and JobSet; yields it and a client of its administrator."""
    cluster = ClusterProcess(directory, parts=parts)
    try:
        await cluster.start()
        async with cluster.client() as client:
            for name in (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS):
                definition = load_yaml(definition_file(name).read_bytes())
                await client.apply(DEFINITIONS, definition, field_manager="tests")
            yield cluster, client
    finally:
        await cluster.kill()


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log of a manager."""

    level: str
    event: str
    fields: Mapping[str, Any] = field(repr=False)


class ManagerProcess(Program):
    """A manager with an identity of its own that reaches the cluster at a port of our choice.

    Args:
        cluster: The cluster.
        name: Its service account, see `user`.
        token: The token of that account.
        port: Where it finds the API server, or a proxy before it.
        configuration: More of the configuration file.
    """

    def __init__(
        self, cluster: ClusterProcess, name: str, *, token: str, port: int, configuration: Mapping[str, Any]
    ) -> None:
        directory = cluster.state.path.parent
        kubeconfig, config = directory / f"{name}.kubeconfig", directory / f"{name}.yaml"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(cluster, token=token, port=port)))
        kubeconfig.chmod(0o600)
        head = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
        silent = {
            "webhook": {"enabled": False},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": "0"},
        }
        document = {**head, **silent, **configuration}
        declare(policy_rules(parse_configuration(document), features=(), watches=(), namespace="default"))
        config.write_text(yaml.safe_dump(document))
        self.user = _user(name)
        """Who it is in the audit log."""
        super().__init__(
            *("manager", "--kubeconfig", str(kubeconfig), "--config", str(config), "--zap-encoder", "json"),
            directory=directory,
            name=name,
        )

    def lines(self) -> list[LogLine]:
        """Read its log, that of all its runs."""
        found = []
        for line in self.log.read_bytes().splitlines() if self.log.exists() else ():
            fields = orjson.loads(line)
            found.append(LogLine(fields["level"], fields["event"], fields))
        return found

    async def logged(self, event: str, *, times: int = 1) -> None:
        """Wait until it has logged an event so many times."""
        async with asyncio.timeout(TIMEOUT):
            while sum(line.event == event for line in self.lines()) < times:
                assert self.code is None, self.log.read_text()
                await asyncio.sleep(0.02)


async def account_token(client: KubeClient, name: str, *, namespace: str = "default") -> str:
    """Create a service account; returns a token of it."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
    await client.create(_SERVICE_ACCOUNTS, account)
    request = {"expirationSeconds": _TOKEN_SECONDS}
    path = _SERVICE_ACCOUNTS.path(namespace, name, "token")
    _, _, body = await client.raw("POST", path, body=orjson.dumps({"spec": request}))
    token: str = orjson.loads(body)["status"]["token"]
    return token


def _own_port() -> int:
    """Choose a port that nobody else gets while we do not listen: neither a usual one nor one for outgoing traffic."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as unused:
            unused.bind(("127.0.0.1", port))
            return port


def _user(name: str) -> str:
    return f"system:serviceaccount:default:{name}"


def _kubeconfig(cluster: ClusterProcess, *, token: str, port: int) -> dict[str, Any]:
    """The kubeconfig of the administrator, with another token, another port, and the same name to verify."""
    document: dict[str, Any] = load_yaml(cluster.state.kubeconfig.read_bytes())
    document["users"][0]["user"] = {"token": token}
    document["clusters"][0]["cluster"] |= {"server": f"https://127.0.0.1:{port}", "tls-server-name": "kubernetes"}
    return document
