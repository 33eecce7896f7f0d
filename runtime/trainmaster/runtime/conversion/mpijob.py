"""MPIJob: a launcher that reaches the workers by ssh, where V1 reached them by `kubectl exec`.

The launcher is the trainer. Hosts, keys and hostfile come from `mlPolicy.mpi`. The images of V1 need no ssh; those of a
TrainJob do.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Final

from trainmaster.runtime.api.constants import INTEL_MPI, LAUNCHER, MPI_RESERVED_ENV, NODE, OPEN_MPI
from trainmaster.runtime.conversion.job import JobConversion
from trainmaster.runtime.conversion.notes import ConversionError
from trainmaster.runtime.conversion.replicas import Group, Replicas
from trainmaster.runtime.conversion.run_policy import convert_cleanup
from trainmaster.runtime.conversion.source import Source
from trainmaster.runtime.jobs.constants import WORKER
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_value

_LAUNCHER: Final = "Launcher"
_SSHD: Final = ("/usr/sbin/sshd", "-De")
_EXEC_FILES: Final = ("/etc/mpi/kubexec.sh", "/opt/kube/kubectl", "/etc/mpi/discover_hosts.sh")
"""What V1 puts into launchers, and a TrainJob does not."""

_SET_BY_V1: Final = frozenset(
    {
        "OMPI_MCA_plm_rsh_agent",
        "OMPI_MCA_orte_default_hostfile",
        "PRTE_MCA_plm_ssh_agent",
        "PRTE_MCA_prte_default_hostfile",
    }
)
_HYDRA: Final = frozenset({"I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC"})


class MPIJob(JobConversion):
    """Converts an MPIJob."""

    kind = "MPIJob"
    framework = "mpi"
    sets_main_only = True

    _slots = 1
    _main_container: str | None = None

    def read(self, spec: Source) -> None:
        """Read the slots and the main container; cleanPodPolicy has an older place, too."""
        self._main_container = spec.take("mainContainer", str) or None
        if self._main_container and not self._workers:
            self.notes.tell(spec.at("mainContainer"), "left out: there are no workers")
        slots = spec.take("slotsPerWorker", int)
        if slots is not None and slots < 1:
            raise ConversionError(spec.at("slotsPerWorker"), f"must be 1 or more, but is {slots}")
        self._slots = slots or 1
        convert_cleanup(spec, self.notes)

    def group(self) -> list[Group]:
        """Return the workers, which come first so that the launcher can wait for them, and the launcher."""
        launcher = self.replicas[_LAUNCHER]
        groups = [
            Group(
                LAUNCHER,
                [(launcher, range(1))],
                main=self.main_container(launcher),
                is_node=True,
                is_trainer=True,
            )
        ]
        if self._workers:
            worker = self.replicas[WORKER]
            members = [(worker, range(worker.count))]
            groups.insert(0, Group(NODE, members, main=self.main_container(worker), is_node=True))
        return groups

    def main_container(self, replicas: Replicas) -> int:
        """Return the container in which ranks run: the first one, or in workers the `mainContainer`."""
        if replicas.type != WORKER or self._main_container is None:
            return 0
        place = replicas.place_of(self._main_container)
        if place is None:
            raise ConversionError("spec.mainContainer", f'workers have no container "{self._main_container}"')
        self.notes.tell("spec.mainContainer", f'ranks run in the container "{NODE}" of the workers, which is this one')
        return place

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return the variables of a launcher that has no GPU: its ranks are elsewhere."""
        if group.name == LAUNCHER and not self._launcher_has_gpu:
            yield env_value("NVIDIA_VISIBLE_DEVICES", "")
            yield env_value("NVIDIA_DRIVER_CAPABILITIES", "")

    def reserved(self) -> frozenset[str]:
        """The variables that V1 or the MPI policy sets."""
        own = _SET_BY_V1 | (_HYDRA if self._implementation == INTEL_MPI else frozenset())
        return own | MPI_RESERVED_ENV[self._implementation]

    def complete(self, group: Group, pod_spec: JsonObject, path: str) -> None:
        """Let workers run sshd, and tell what the change from `kubectl exec` to ssh means."""
        container, place = pod_spec["containers"][group.main], f"{path}.containers[{group.main}]"
        if group.name == NODE:
            self._run_sshd(container, place)
        text = json.dumps([container.get("command"), container.get("args"), container.get("env")])
        for file in _EXEC_FILES:
            if file in text:
                self.notes.lose(place, f"names {file}, which TrainJobs do not have: they reach the workers by ssh")
        users = [(holder.get("securityContext") or {}).get("runAsUser") for holder in (container, pod_spec)]
        if next((user for user in users if user is not None), 0) != 0:
            self.notes.lose(
                f"{path}.securityContext.runAsUser",
                "the keys of ssh are in /root/.ssh; let mlPolicy.mpi.sshAuthMountPath of the TrainingRuntime name "
                "the .ssh of this user's home",
            )

    def ml_policy(self) -> JsonObject:
        """Return the MPI policy."""
        return {
            "mpi": {
                "mpiImplementation": self._implementation,
                "numProcPerNode": self._slots,
                "runLauncherAsNode": self._runs_on_launcher,
            }
        }

    def processes(self) -> int | None:
        """Return the slots: the policy alone would count GPUs where it says 1."""
        return self._slots

    @property
    def trainer_fields(self) -> Collection[str]:
        """What the TrainJob can say: a launcher that is a host would share variables and resources with workers."""
        shared = {"env", "resources"} if self._runs_on_launcher and self._workers else set()
        return [field for field in super().trainer_fields if field not in shared]

    @property
    def nodes(self) -> int:
        """The number of hosts on which ranks run."""
        return self._workers + self._runs_on_launcher

    def depends_on(self, group: Group) -> list[JsonObject]:
        """Let the launcher wait for the workers, except in a gang, which starts at once."""
        if group.name != LAUNCHER or not self._workers or self.gang_scheduler:
            return []
        return [{"name": NODE, "status": "Ready"}]

    @property
    def _workers(self) -> int:
        worker = self.replicas.get(WORKER)
        return worker.count if worker else 0

    @property
    def _runs_on_launcher(self) -> bool:
        """Whether ranks run on the launcher, too."""
        return self._launcher_has_gpu or not self._workers

    @property
    def _launcher_has_gpu(self) -> bool:
        limits = [(each.get("resources") or {}).get("limits") or {} for each in self.replicas[_LAUNCHER].containers]
        return any("gpu" in name for each in limits for name in each)

    @property
    def _implementation(self) -> str:
        """Which MPI the launcher has: V1 prepared for Open MPI and Intel MPI alike."""
        launcher = self.replicas[_LAUNCHER]
        container = launcher.containers[self.main_container(launcher)]
        names = [each["name"] for each in container.get("env") or ()]
        is_intel = any(name.startswith("I_MPI_") for name in names) or "intel" in str(container.get("image"))
        return INTEL_MPI if is_intel else OPEN_MPI

    def _run_sshd(self, container: JsonObject, path: str) -> None:
        command = [*(container.get("command") or []), *(container.get("args") or [])]
        if any("sshd" in word for word in command):
            return
        if not container.get("command") or str(command[0]).rpartition("/")[2] == "sleep":
            for field in ("command", "args"):
                if container.pop(field, None):
                    self.notes.tell(f"{path}.{field}", f"becomes {' '.join(_SSHD)}: a worker waits for ssh")
            container["command"] = list(_SSHD)
            self.notes.lose(
                f"{path}.image",
                "needs sshd in the workers and ssh in the launcher: ranks are started by ssh, where V1 used kubectl "
                "exec; add openssh to the image if it lacks it",
            )
        else:
            self.notes.lose(
                f"{path}.command", "has to start sshd: ranks are started by ssh, where V1 used kubectl exec"
            )
