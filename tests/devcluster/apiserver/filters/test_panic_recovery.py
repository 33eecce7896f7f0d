"""Defects of the server: what a client sees of them, and what it does not."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.testing.envtest import start_environment

_PATH = "/api/v1/namespaces/default/pods/p/log"


class _Defective:
    def __init__(self, *, halfway: bool) -> None:
        self._halfway = halfway

    async def read(self, **_: Any) -> AsyncIterator[bytes]:
        if not self._halfway:
            raise RuntimeError("secret detail")
        return self._break()

    async def _break(self) -> AsyncIterator[bytes]:
        yield b"begun\n"
        raise RuntimeError("secret detail")


@pytest.mark.parametrize("halfway", [False, True])
async def test_a_defect_is_logged_and_its_details_stay_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, halfway: bool
) -> None:
    """Halfway through an answer the client must not take what it has for the whole: the connection breaks."""
    async with (
        start_environment(tmp_path, log_source=_Defective(halfway=halfway)) as server,
        server.session() as session,
    ):
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
        await server.api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace="default")
        with caplog.at_level(logging.ERROR):
            if halfway:
                with pytest.raises(aiohttp.ClientError):
                    async with session.get(_PATH) as response:
                        await response.read()
            else:
                async with session.get(_PATH) as response:
                    document = await response.json()
                assert (response.status, document["reason"]) == (500, "InternalError")
                assert "secret" not in document["message"]
        async with session.get("/healthz") as response:
            assert await response.text() == "ok", "other requests go on"
    assert "RuntimeError: secret detail" in caplog.text
