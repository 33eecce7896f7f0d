"""Connections of asyncio streams."""

from __future__ import annotations

import asyncio
import contextlib


def abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once, unless it is closed already."""
    # Python 3.11 fails on one that is closed, if its close had to wait for unsent bytes; no attribute tells that.
    with contextlib.suppress(AttributeError):
        writer.transport.abort()
