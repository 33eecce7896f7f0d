"""Exec plugins of kubeconfig files: programs that print credentials (KEP-541).

Guarantees:
- A plugin has `PLUGIN_TIMEOUT` to answer, is killed after that or when the request that needed it is cancelled, and
  may print so much and no more.
- Where a person can answer (a terminal, and the plugin may ask), it sees what the plugin writes; elsewhere that
  becomes part of the error.
- A program that is missing is reported with the `installHint` of the kubeconfig.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from trainmaster.controller.kube.clock import Clock, parse_time
from trainmaster.controller.kube.rest.config import ConfigurationError
from trainmaster.controller.kube.rest.errors import shorten
from trainmaster.runtime.jsontext import load_json

PLUGIN_TIMEOUT: Final = 60.0
"""Seconds; enough to log in through a browser, short enough for a controller to notice."""

_OUTPUT_LIMIT: Final = 2**20
_VERSIONS: Final = frozenset({"client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCredential:
    """What a plugin printed: a token, a certificate with its key, or both."""

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires: datetime | None = None


async def run_exec_plugin(
    config: Mapping[str, Any], *, directory: Path, cluster: Mapping[str, Any], clock: Clock
) -> ExecCredential:
    """Run the plugin of a kubeconfig's user; `directory` is where the kubeconfig lies.

    Raises:
        ConfigurationError: It is not there, fails, takes too long or prints something else.
    """
    command, version = config.get("command"), config.get("apiVersion")
    if not command or version not in _VERSIONS:
        raise ConfigurationError(f"the exec plugin {command!r} needs a command and one of {sorted(_VERSIONS)}")
    program = str(directory / command) if os.sep in command else command
    interactive = _interactive(config)
    info: dict[str, Any] = {"interactive": interactive}
    if config.get("provideClusterInfo"):
        info["cluster"] = cluster
    environment = {entry["name"]: entry["value"] for entry in config.get("env") or ()}
    environment["KUBERNETES_EXEC_INFO"] = json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": info})
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *map(str, config.get("args") or ()),
            env={**os.environ, **environment},
            stdin=None if interactive else DEVNULL,
            stdout=PIPE,
            stderr=None if interactive else PIPE,
        )
    except OSError as error:
        hint = f"; {config['installHint'].strip()}" if config.get("installHint") else ""
        raise ConfigurationError(f"the exec plugin {program} cannot be run: {error.strerror or error}{hint}") from error
    try:
        async with clock.timeout(PLUGIN_TIMEOUT), asyncio.TaskGroup() as readers:
            stdout = readers.create_task(_bounded(process.stdout))
            stderr = readers.create_task(_bounded(process.stderr))
            readers.create_task(process.wait())
    except TimeoutError as error:
        raise ConfigurationError(f"the exec plugin {program} gave no answer within {PLUGIN_TIMEOUT:g} s") from error
    finally:
        await _ended(process)
    if process.returncode != 0:
        reason = shorten(stderr.result().decode("utf-8", "replace").strip(), limit=500) or "it does not say why"
        raise ConfigurationError(f"the exec plugin {program} failed with code {process.returncode}: {reason}")
    return _decode(stdout.result(), program=program, version=str(version))


def _interactive(config: Mapping[str, Any]) -> bool:
    """Whether the plugin can ask a person."""
    mode = config.get("interactiveMode") or "IfAvailable"
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not terminal:
        raise ConfigurationError(
            f"the exec plugin {config['command']} must ask somebody (interactiveMode: Always), but there is no terminal"
        )
    return terminal and mode != "Never"


async def _bounded(stream: asyncio.StreamReader | None) -> bytes:
    """Read a stream to its end, and keep its beginning."""
    kept = b""
    while stream is not None and (chunk := await stream.read(2**16)):
        kept += chunk[: _OUTPUT_LIMIT - len(kept)]
    return kept


async def _ended(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def _decode(output: bytes, *, program: str, version: str) -> ExecCredential:
    try:
        answer = load_json(output)
        kind, status = (answer["kind"], answer["apiVersion"]), answer["status"]
        expires = status.get("expirationTimestamp")
        credentials = ExecCredential(
            token=status.get("token") or "",
            certificate=status.get("clientCertificateData") or "",
            key=status.get("clientKeyData") or "",
            expires=parse_time(expires) if expires else None,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # The output may hold credentials, so it is not shown.
        raise ConfigurationError(
            f"the exec plugin {program} printed no valid ExecCredential ({type(error).__name__}: {error})"
        ) from error
    if kind != ("ExecCredential", version):
        raise ConfigurationError(f"the exec plugin {program} printed a {kind[0]} of {kind[1]}, not of {version}")
    if not credentials.token and not (credentials.certificate and credentials.key):
        raise ConfigurationError(
            f"the exec plugin {program} gave neither a token nor a certificate with its key; log in with it first"
        )
    return credentials
