"""`cluster status`: what can be said about a cluster from outside of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from trainmaster.devcluster.cli.cluster_client import ClusterUnreachable, failed_checks, get, get_manager_status
from trainmaster.devcluster.kubeconfig import server_in
from trainmaster.devcluster.manager.health import READY, ManagerStatus
from trainmaster.devcluster.settings import KUBELET, MANAGER
from trainmaster.devcluster.state import ClusterRecord, StateDirectory
from trainmaster.runtime.jsontree import JsonObject

NOT_READY, NOT_RUNNING = 1, 3
_TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs"
_RUNTIMES = "/trainmaster.dev/runtimes"
_OF_RUN = "torch-distributed"  # which `trainmaster run` takes for programs of no other framework
_PODS = "/api/v1/pods"
_AT_REST = frozenset({"Complete", "Failed", "Suspended"})


def print_status(state: StateDirectory) -> int:
    """Print the status of the cluster; returns 0 if it is ready, 1 if something in it is not, 3 if it does not run."""
    pid = state.holder()
    record = state.read_record()
    if pid is None:
        _print("cluster", "not running")
        _print("state", f"{state.path} ({'kept' if record else 'none yet'})")
        return NOT_RUNNING
    if record is None or record.pid != pid:
        _print("cluster", f"starting (pid {pid}); see {state.log}")
        _starting(state)
        return NOT_RUNNING
    _print("cluster", f"running (pid {pid}), trainmaster {record.version}")
    _print("server", record.server)
    _print("kubeconfig", record.kubeconfig)
    _print("state", str(state.path))
    _print("parts", ", ".join(record.parts) or "none: a bare API server")
    if KUBELET in record.parts:
        _print("networking", record.networking or "unknown: an older version runs")
        _print("gpus", record.gpus or "none")
    for note in record.notes:
        _print("note", note)
    code = _server(state, record)
    if MANAGER in record.parts:
        code = max(code, _manager(state, record.server))
        _runtimes(state, record)
        _print("trainjobs", _count(state, record, _TRAINJOBS, _trainjob_runs))
    _print("pods", _count(state, record, _PODS, _pod_runs))
    return code


def _server(state: StateDirectory, record: ClusterRecord) -> int:
    try:
        problems = failed_checks(state, record.server)
    except ClusterUnreachable as error:
        problems = [str(error)]
    for problem in problems:
        _print("problem", problem)
    if problems:
        _print("  what next", f"look at the disk of {state.path}; the cluster goes on by itself when it can")
    return NOT_READY if problems else 0


def _starting(state: StateDirectory) -> None:
    """Print what the manager waits for, as soon as there is a server to tell it."""
    server = server_in(state.kubeconfig)
    if server is not None:
        with suppress(ClusterUnreachable):  # the kubeconfig may be that of the last start
            _print_manager(get_manager_status(state, server))


def _manager(state: StateDirectory, server: str) -> int:
    try:
        return _print_manager(get_manager_status(state, server))
    except ClusterUnreachable as error:
        _print("manager", f"unknown, {error}")
        return NOT_READY


def _runtimes(state: StateDirectory, record: ClusterRecord) -> None:
    """Print which runtimes train on this machine, and what is missing for the others."""
    if KUBELET not in record.parts:
        return
    try:
        missing = get(state, record.server, _RUNTIMES)
    except ClusterUnreachable as error:
        _print("runtimes", f"unknown, {error}")
        return
    _print("runtimes", ", ".join(name for name, needs in missing.items() if needs is None) or "none is complete here")
    if missing.get(_OF_RUN):
        print(f"{'':<13} {_OF_RUN} runs all that needs no torchrun, as `trainmaster run PROGRAM` does")
    for needs in dict.fromkeys(filter(None, missing.values())):
        names = [name for name, each in missing.items() if each == needs]
        _print("  incomplete", ", ".join(names))
        print(f"{'':<13} {needs}")


def _print_manager(manager: ManagerStatus) -> int:
    _print("manager", manager.summary)
    if manager.phase == READY:
        _print("metrics", manager.metrics or "off")
        return 0
    _print("  last error" if manager.exit_code is not None else "  waits for", manager.message)
    _print("  log", manager.log)
    return NOT_READY


def _count(state: StateDirectory, record: ClusterRecord, path: str, runs: Callable[[JsonObject], bool]) -> str:
    try:
        objects: list[JsonObject] = get(state, record.server, path)["items"]
    except (ClusterUnreachable, KeyError) as error:
        return f"unknown, {error}"
    return f"{sum(map(runs, objects))} running of {len(objects)}"


def _trainjob_runs(job: JsonObject) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return not any(each["type"] in _AT_REST and each["status"] == "True" for each in conditions)


def _pod_runs(pod: JsonObject) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


def _print(label: str, text: str) -> None:
    print(f"{label + ':':<13} {text}")
