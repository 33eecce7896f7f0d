"""What the command `manager` makes a manager of."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import pytest
from support.plugins import Counting

from trainmaster.controller.cli import manager
from trainmaster.controller.configuration import effective_configuration
from trainmaster.controller.manager import process
from trainmaster.controller.manager.parts import Setup
from trainmaster.controller.plugins.loading import LoadedPlugins
from trainmaster.controller.server.healthz import Healthz

SETUPS: list[Setup] = []
"""Those of the managers that were made."""


class Made:
    """A manager that does nothing."""

    def __init__(self, setup: Setup, **_: Any) -> None:
        SETUPS.append(setup)
        self.healthz = Healthz(liveness="healthz", readiness="readyz")

    async def run(self, _stop: object) -> None:
        """End at once."""


async def test_plugins_of_others_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the guard there are no threads for them and no time limit: one that hangs would stop the manager."""

    async def config(**_: object) -> SimpleNamespace:
        return SimpleNamespace(namespace="default", server="https://127.0.0.1", source="none")

    monkeypatch.setattr(manager, "Manager", Made)
    monkeypatch.setattr(manager, "load_config", config)
    monkeypatch.setattr(manager, "load", lambda *_, **__: LoadedPlugins([Counting()], {}, frozenset({"counting"})))
    for change in ("unmap_freed_blocks", "switch_threads_often", "freeze"):
        monkeypatch.setattr(process, change, lambda: None)
    arguments = argparse.Namespace(config=(), kubeconfig=None)
    await manager._run(effective_configuration(), arguments, [], apply=lambda _: None)
    (setup,) = SETUPS
    assert setup.framework.guards_others
