"""XGBoostJob: the nodes of one trainer, with the variables of V1 beside those of `mlPolicy.xgboost`.

Node 0 is the master, node i + 1 is worker i. With different templates there is a ReplicatedJob for each, and the rank
is the index among all pods.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.runtime.api.constants import XGBOOST_RESERVED_ENV
from trainmaster.runtime.conversion.job import JobConversion
from trainmaster.runtime.conversion.replicas import Group
from trainmaster.runtime.jobs.constants import MASTER, WORKER
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_value


class XGBoostJob(JobConversion):
    """Converts an XGBoostJob."""

    kind = "XGBoostJob"
    framework = "xgboost"
    is_ranked = True

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return the variables in the order of V1."""
        master, worker = self.replicas[MASTER], self.replicas.get(WORKER)
        yield env_value("MASTER_PORT", self.port(master))
        yield env_value("MASTER_ADDR", self.host(master, 0))
        yield env_value("WORLD_SIZE", self.total)
        yield self.rank(group, "RANK")
        yield env_value("PYTHONUNBUFFERED", 1)
        if worker is not None and worker.count:
            yield env_value("WORKER_PORT", self.port(worker))
            yield env_value("WORKER_ADDRS", ",".join(self.host(worker, index) for index in range(worker.count)))

    def ml_policy(self) -> JsonObject:
        """Return the XGBoost policy, unless the user sets its variables."""
        containers = self.groups[0].replicas.containers
        own = {variable["name"] for each in containers for variable in each.get("env") or ()}
        return {"xgboost": {}} if self.is_one_group and not own & XGBOOST_RESERVED_ENV else {}

    def job_success(self, group: Group) -> JsonObject | None:
        """V1 looks at the master alone."""
        return {"rules": [{"succeededIndexes": "0"}]} if self.is_one_group and group.count > 1 else None
