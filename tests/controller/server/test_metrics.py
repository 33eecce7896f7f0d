"""The metrics endpoint."""

from __future__ import annotations

from support.http import get, listening

from trainmaster.controller.server.metrics import metrics


async def test_metrics_are_served_in_the_format_of_prometheus() -> None:
    async with listening(metrics()) as port:
        status, text, content_type = await get(port, "metrics")
    assert status == 200
    assert "# HELP process_resident_memory_bytes" in text
    assert content_type.startswith("text/plain")
