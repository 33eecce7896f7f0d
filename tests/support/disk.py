"""Storage that fails: full disks, and a store for what is left when a process is killed."""

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainmaster.devcluster.apiserver.storage import Record, Store


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


class BrittleStore(Store):
    """A store whose writes fail now and then, as if the process had been killed just before them."""

    def __init__(self, chooser: random.Random) -> None:
        super().__init__()
        self.chooser = chooser
        self.failure_rate = 0.0

    def put(self, *args: Any, **kwargs: Any) -> Record:
        self._perhaps_fail()
        return super().put(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> Record:
        self._perhaps_fail()
        return super().delete(*args, **kwargs)

    def _perhaps_fail(self) -> None:
        if self.chooser.random() < self.failure_rate:
            raise OSError("killed")
