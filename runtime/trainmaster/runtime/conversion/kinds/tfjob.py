"""TFJob: a ReplicatedJob for each type of replicas; there is no plugin for TensorFlow, and none is needed.

TF_CONFIG is the same for all pods of a type but for the index, which Kubernetes fills in as `$(JOB_COMPLETION_INDEX)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from trainmaster.runtime.conversion.job import JobConversion
from trainmaster.runtime.conversion.notes import ConversionError
from trainmaster.runtime.conversion.replicas import Group, Replicas
from trainmaster.runtime.conversion.source import Source
from trainmaster.runtime.jobs.constants import WORKER
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_completion_index, env_value

CHIEFS: Final = ("Chief", "Master")
PS: Final = "PS"
_ALL_WORKERS: Final = "AllWorkers"
_INDEX: Final = "JOB_COMPLETION_INDEX"
"""Kubernetes sets this variable last, unless it is there; so it has to be, to be used by another one."""


class TFJob(JobConversion):
    """Converts a TFJob."""

    kind = "TFJob"
    framework = "tensorflow"
    sets_main_only = True

    _needs_all_workers = False
    _is_dynamic = False

    def read(self, spec: Source) -> None:
        """Read when the job has succeeded, and whether workers come and go."""
        policy = spec.take("successPolicy", str)
        if policy not in (None, "", _ALL_WORKERS):
            raise ConversionError(spec.at("successPolicy"), f'"{policy}" is neither empty nor {_ALL_WORKERS}')
        self._needs_all_workers = policy == _ALL_WORKERS
        self._is_dynamic = bool(spec.take("enableDynamicWorker", bool))
        if self._is_dynamic:
            self.notes.lose(
                spec.at("enableDynamicWorker"),
                "workers know of themselves only, as in V1; but the failure of one ends the TrainJob as its "
                "restartPolicy says, and none can be added",
            )

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return TF_CONFIG, if there are several pods."""
        if self.total == 1:
            return
        yield env_completion_index(_INDEX)
        config = self._sparse(group) if self._is_dynamic else self._full(group)
        yield env_value("TF_CONFIG", config)

    def job_success(self, group: Group) -> JsonObject | None:
        """Without a chief, V1 looks at the first worker alone."""
        if self._chief or self._needs_all_workers or group.replicas.type != WORKER or group.count <= 1:
            return None
        return {"rules": [{"succeededIndexes": "0"}]}

    @property
    def _chief(self) -> Replicas | None:
        return next((each for each in self.present if each.type in CHIEFS and each.count), None)

    def _address(self, replicas: Replicas, index: int) -> str:
        return f"{self.host(replicas, index)}:{self.port(replicas)}"

    def _addresses(self, type_: str) -> list[str]:
        replicas = self.replicas.get(type_)
        return [self._address(replicas, index) for index in range(replicas.count)] if replicas else []

    def _full(self, group: Group) -> str:
        cluster = {each.word: self._addresses(each.type) for each in self.replicas.values()}
        ordered = {word: cluster[word] for word in sorted(cluster)}
        return _with_task({"cluster": ordered}, group, environment="cloud")

    def _sparse(self, group: Group) -> str:
        """Workers know themselves and all parameter servers, parameter servers know themselves."""
        type_ = group.replicas.type
        own = f"{group.name}-0-$({_INDEX})"
        address = f"{self.jobset}-{own}.{self.jobset}:{self.port(group.replicas)}"
        cluster: JsonObject = {"worker": {}, "ps": []}
        if type_ == WORKER:
            cluster = {"worker": {f"$({_INDEX})": address}, "ps": self._addresses(PS)}
        elif type_ == PS:
            cluster["ps"] = [address]
        return _with_task({"cluster": cluster}, group)


def _with_task(config: JsonObject, group: Group, **more: Any) -> str:
    """Write a configuration as V1 did, with the index as a number that is not known yet."""
    task = {"type": group.replicas.word, "index": 0}
    text = json.dumps({**config, "task": task, **more}, separators=(",", ":"))
    return text.replace(
        f'"type":"{group.replicas.word}","index":0', f'"type":"{group.replicas.word}","index":$({_INDEX})'
    )
