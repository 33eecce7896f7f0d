"""`trainmaster doctor`, asked in this process."""

from __future__ import annotations

import functools
from typing import Any

from support.stack import Stack

from trainmaster.controller.cli.doctor import command
from trainmaster.controller.configuration import complete, parse_configuration
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.runtime.framework import Framework, load_plugins

HEAD = {"apiVersion": "config.trainer.kubeflow.org/v1alpha1", "kind": "Configuration"}
NAMESPACE = "kubeflow"
"""Which every cluster has."""


@functools.cache
def _framework() -> Framework:
    """That of the installed plugins; loading them takes as long as a look at a cluster."""
    return Framework(load_plugins())


async def findings(
    stack: Stack, *, access: RestConfig | None = None, namespace: str = NAMESPACE, **sections: Any
) -> dict[str, list[str]]:
    """What it tells about a cluster with a configuration: `status: message; what next`, by check."""
    effective = complete(parse_configuration({**HEAD, "leaderElection": {"leaderElect": True}, **sections}))
    lines = await command.look(access or stack.access, effective, _framework(), namespace=namespace)
    found: dict[str, list[str]] = {}
    for line in lines:
        what_next = f"; {line.what_next}" if line.what_next else ""
        found.setdefault(line.check, []).append(f"{line.status}: {line.message}{what_next}")
    return found


async def only_finding(stack: Stack, check: str, **options: Any) -> str:
    """The only line that it tells of a check."""
    (line,) = (await findings(stack, **options))[check]
    return line
