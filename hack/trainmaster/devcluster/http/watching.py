"""Watch streams: one JSON object a line, for as long as the client wants to listen.

Guarantees:
- headers leave before the first event and every event leaves at once;
- what the client has been told of is never ahead of a bookmark's resource version: it may resume from any bookmark;
- a stream ends cleanly: at its timeout, when the server stops, or after an ERROR event that says why;
- a watch from a forgotten revision is an ERROR event with 410 Expired; the client lists again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import orjson
from aiohttp import web

from trainmaster.devcluster import errors
from trainmaster.devcluster.api import Api, WatchEvent
from trainmaster.devcluster.errors import StatusError
from trainmaster.devcluster.http.parameters import ListOptions, read_resource_version
from trainmaster.devcluster.http.presenting import Presenter
from trainmaster.runtime.jsontree import JsonObject

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """How long things take on a watch, in seconds; tests shorten them."""

    bookmark_interval: float = 60.0
    """The API server's own interval; clients count on about one bookmark a minute."""
    shortest: float = 30 * 60.0
    longest: float = 60 * 60.0
    """Without timeoutSeconds a watch lasts a random time between the two, so that clients do not return all at once."""
