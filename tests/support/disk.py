"""Disks that are full."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(*, room: int = 0) -> Iterator[None]:
    """Let no file of this process grow beyond `room` bytes: what is written is taken up to there, and then refused.

    It takes the place of a disk without space, which only root could make; the error is EFBIG in place of ENOSPC.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
