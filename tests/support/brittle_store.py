"""A store for tests of what is left when a process is killed."""

from __future__ import annotations

import random
from typing import Any

from trainmaster.devcluster.apiserver.storage import Record, Store


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
