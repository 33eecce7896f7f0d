"""PaddleJob: one pod where all meet, and the others.

The launcher of Paddle starts the rendezvous where PADDLE_MASTER is the address of its own pod, so that pod gets its IP
and the others get its name: they are two ReplicatedJobs. With a Master (a parameter server) these are `master` and
`worker`. Without one the first worker is the ReplicatedJob `master`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trainmaster.runtime.conversion.job import JobConversion
from trainmaster.runtime.conversion.replicas import Group, Replicas
from trainmaster.runtime.conversion.source import Source
from trainmaster.runtime.jobs.constants import MASTER, WORKER
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_field, env_value

_MEETING: Final = "master"
_POD_IP: Final = "POD_IP_DUMMY"


class PaddleJob(JobConversion):
    """Converts a PaddleJob."""

    kind = "PaddleJob"
    framework = "paddle"

    def read(self, spec: Source) -> None:
        """Leave out the elastic policy, by which V1 does nothing."""
        policy = spec.part("elasticPolicy")
        for field in policy.names:
            self.notes.tell(policy.at(field), "left out: Training Operator V1 does nothing with it in a PaddleJob")
        policy.take_all()

    def group(self) -> list[Group]:
        """Return the pod where all meet, and the others."""
        first, others = self._meeting, [each for each in self.present if each is not self._meeting]
        if first.count <= 1 and not others:
            return [self.group_of(first)]
        main = self.main_container(first)
        groups = [Group(_MEETING, [(first, range(1))], main=main)]
        if first.count > 1:
            groups.append(
                Group("worker" if first.type == WORKER else "server", [(first, range(1, first.count))], main=main)
            )
        return groups + [self.group_of(each) for each in others]

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return the variables in the order of V1."""
        meeting = self._meeting
        yield env_value("PYTHONUNBUFFERED", 1)
        yield env_value("PADDLE_JOB_ID", self.jobset)
        yield env_value("PADDLE_NNODES", self.total)
        if group is self.groups[0]:
            yield env_field(_POD_IP, "status.podIP")
            yield env_value("PADDLE_MASTER", f"$({_POD_IP}):{self.port(meeting)}")
        else:
            yield env_value("PADDLE_MASTER", f"{self.host(meeting, 0)}:{self.port(meeting)}")
        if self._has_servers:
            yield env_value("PADDLE_SERVER_NUM" if group.replicas.type == MASTER else "PADDLE_TRAINER_NUM", 1)

    @property
    def _has_servers(self) -> bool:
        return MASTER in self.replicas

    @property
    def _meeting(self) -> Replicas:
        """The type whose first pod is where all meet."""
        return self.present[0]
