"""Whether this machine lets pods run in namespaces, and the mark for tests that need it."""

from __future__ import annotations

import asyncio

import pytest

from trainmaster.devcluster.kubelet.network.mode import Networking, choose_networking


def _find_out() -> Networking:
    return asyncio.run(choose_networking("auto"))


FOUND = _find_out()
"""The mode that `auto` gives here."""

needs_namespaces = pytest.mark.skipif(FOUND.mode != "namespaces", reason=FOUND.reason or "namespaces work")
