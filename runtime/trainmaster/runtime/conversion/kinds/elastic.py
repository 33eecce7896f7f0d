"""The elastic policy of a PyTorchJob: by its variables torchrun forms the ring again when workers come and go.

A TrainJob keeps the number of its nodes. Nodes that fail come back and join again; no autoscaler adds or removes any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainmaster.runtime.api.constants import (
    PET_NNODES,
    PET_NPROC_PER_NODE,
    PET_RDZV_BACKEND,
    PET_RDZV_ENDPOINT,
    PET_RDZV_ID,
)
from trainmaster.runtime.conversion.notes import Notes
from trainmaster.runtime.conversion.source import Source, checked, objects
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_value


class Elastic:
    """An elastic policy.

    Args:
        source: The policy.
        limits: The policy with its limits, which may have defaults.
        workers: How many workers there are.
        notes: Where to tell what is lost.
    """

    def __init__(self, source: Source, limits: JsonObject, workers: int, notes: Notes) -> None:
        for name in ("minReplicas", "maxReplicas"):
            source.take(name, int)
        self._lowest, self._highest = limits["minReplicas"], limits["maxReplicas"]
        self._backend = source.take("rdzvBackend", str) or "c10d"
        self._host, self._port = source.take("rdzvHost", str), source.take("rdzvPort", int)
        self._id = source.take("rdzvId", str)
        conf = objects(source.take("rdzvConf", list) or [], source.at("rdzvConf"))
        self._conf = [
            "=".join(
                checked(each.get(field), str, f"{source.at('rdzvConf')}[{place}].{field}") for field in ("key", "value")
            )
            for place, each in enumerate(conf)
        ]
        self._standalone = source.take("standalone", bool)
        self._restarts = source.take("maxRestarts", int)
        self.processes = source.take("nProcPerNode", int)
        """nProcPerNode, the older place of nprocPerNode."""

        if source.take("metrics", list):
            notes.lose(
                source.at("metrics"),
                f"left out: nothing changes the number of nodes of a TrainJob, so it keeps {workers} workers and gets "
                "no HorizontalPodAutoscaler",
            )
        elif self._lowest != self._highest:
            notes.tell(
                source.at("minReplicas"),
                f"a TrainJob keeps its {workers} workers; torchrun goes on with {self._lowest} or more of them",
            )

    def environment(self, rewritten: Callable[[str], str], host: str, port: int) -> Iterable[JsonObject]:
        """Return the variables that V1 set.

        Args:
            rewritten: Puts new names of pods in place of old ones.
            host: Of the first worker.
            port: Of the workers.
        """
        host = rewritten(self._host) if self._host else host
        yield env_value(PET_RDZV_ENDPOINT, f"{host}:{port if self._port is None else self._port}")
        yield env_value(PET_RDZV_BACKEND, self._backend)
        yield env_value(PET_NNODES, f"{self._lowest}:{self._highest}")
        if self._restarts is not None:
            yield env_value("PET_MAX_RESTARTS", self._restarts)
        if self.processes is not None:
            yield env_value(PET_NPROC_PER_NODE, self.processes)
        if self._id:
            yield env_value(PET_RDZV_ID, self._id)
        if self._conf:
            yield env_value("PET_RDZV_CONF", ",".join(self._conf))
        if self._standalone:
            # V1 set the empty text, which torchrun cannot read.
            yield env_value("PET_STANDALONE", 1)
