"""JAXJob: the nodes of one trainer, with the variables of V1 beside those of `mlPolicy.jax`."""

from __future__ import annotations

from collections.abc import Iterable

from trainmaster.runtime.conversion.job import JobConversion
from trainmaster.runtime.conversion.replicas import Group
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_value


class JAXJob(JobConversion):
    """Converts a JAXJob."""

    kind = "JAXJob"
    framework = "jax"

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return the variables in the order of V1."""
        worker = group.replicas
        yield env_value("PYTHONUNBUFFERED", 1)
        yield env_value("COORDINATOR_PORT", self.port(worker))
        yield env_value("COORDINATOR_ADDRESS", self.host(worker, 0))
        yield env_value("NUM_PROCESSES", self.total)
        yield self.rank(group, "PROCESS_ID")

    def ml_policy(self) -> JsonObject:
        """Return the JAX policy."""
        return {"jax": {}}
