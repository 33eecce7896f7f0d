"""Columns: what `kubectl get` shows of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from trainmaster.devcluster.apiserver.registry import pod_summary
from trainmaster.devcluster.apiserver.registry.jsonpath import compile_path
from trainmaster.devcluster.apiserver.registry.registry import Column
from trainmaster.devcluster.apiserver.registry.times import age, human_duration
from trainmaster.devcluster.apiserver.selectors import format_label_selector
from trainmaster.runtime.jsontree import JsonObject


def _column(name: str, cell: Callable[[JsonObject], Any], *, wide: bool = False, kind: str = "string") -> Column:
    return Column(name, kind, "", name, 1 if wide else 0, lambda obj, _now: cell(obj))


def _at(path: str, missing: Any = "<none>") -> Callable[[JsonObject], Any]:
    find = compile_path(path)

    def cell(obj: JsonObject) -> Any:
        found = find(obj)
        return found[0] if found else missing

    return cell


NAME = Column("Name", "string", "name", "Name of the object", 0, lambda obj, _now: obj["metadata"]["name"])
AGE = Column(
    "Age", "string", "", "Time since creation", 0, lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now)
)


def custom_columns(declared: Iterable[JsonObject]) -> tuple[Column, ...]:
    """Return the columns of a custom resource, as far as their paths can be read; without declared ones its age."""
    columns = [NAME]
    for each in declared:
        try:
            columns.append(_custom_column(each))
        except ValueError:
            return tuple(columns)
    return tuple(columns) if len(columns) > 1 else (NAME, AGE)


def _reference(reference: JsonObject) -> str:
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def _custom_column(declared: JsonObject) -> Column:
    find = compile_path(declared["jsonPath"])
    kind = declared["type"]

    def cell(obj: JsonObject, now: datetime) -> Any:
        found = find(obj)
        if not found:
            return None
        return _typed(kind, found, now)

    return Column(
        declared["name"],
        kind,
        declared.get("format", ""),
        declared.get("description", ""),
        declared.get("priority", 0),
        cell,
    )


def _typed(kind: str, found: list[Any], now: datetime) -> Any:
    # Of several results the API server shows the first.
    value = found[0]
    match kind:
        case "date":
            try:
                return age(value, now)
            except (TypeError, ValueError):
                return "<invalid>"
        case "string":
            return _text(value)
        case "integer" if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value)
        case "number" if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        case "boolean" if isinstance(value, bool):
            return value
    return None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _readiness_gates(obj: JsonObject) -> str:
    gates = [each["conditionType"] for each in obj["spec"].get("readinessGates") or ()]
    conditions = obj.get("status", {}).get("conditions") or ()
    true = {each["type"] for each in conditions if each["status"] == "True"}
    return f"{len(true.intersection(gates))}/{len(gates)}" if gates else "<none>"


def _job_status(obj: JsonObject) -> str:
    holding = {each["type"] for each in obj.get("status", {}).get("conditions") or () if each["status"] == "True"}
    for condition in ("Complete", "Failed"):
        if condition in holding:
            return condition
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if condition in holding:
            return condition
    return "Running"


def _job_completions(obj: JsonObject) -> str:
    wanted = obj["spec"].get("completions")
    done = obj.get("status", {}).get("succeeded", 0)
    return f"{done}/{wanted}" if wanted is not None else f"{done}/1 of {obj['spec'].get('parallelism', 1)}"


def _job_duration(obj: JsonObject, now: datetime) -> str:
    status = obj.get("status", {})
    if not status.get("startTime"):
        return ""
    end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    return human_duration((end - datetime.fromisoformat(status["startTime"])).total_seconds())


def _node_status(obj: JsonObject) -> str:
    ready = [each for each in obj.get("status", {}).get("conditions") or () if each["type"] == "Ready"]
    text = "Unknown" if not ready else "Ready" if ready[0]["status"] == "True" else "NotReady"
    return f"{text},SchedulingDisabled" if obj.get("spec", {}).get("unschedulable") else text


def _node_roles(obj: JsonObject) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(
        label.removeprefix(prefix) for label in obj["metadata"].get("labels") or () if label.startswith(prefix)
    )
    return ",".join(roles) or "<none>"


def _service_ports(obj: JsonObject) -> str:
    ports = obj.get("spec", {}).get("ports") or ()
    return ",".join(f"{each['port']}/{each.get('protocol', 'TCP')}" for each in ports) or "<none>"


def _event_object(obj: JsonObject) -> str:
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _event_last_seen(obj: JsonObject, now: datetime) -> str:
    moment = (
        (obj.get("series") or {}).get("lastObservedTime")
        or obj.get("lastTimestamp")
        or obj.get("deprecatedLastTimestamp")
        or obj.get("eventTime")
    )
    return age(moment, now)


def _claim_state(obj: JsonObject) -> str:
    status = obj.get("status", {})
    states = ["deleted"] if "deletionTimestamp" in obj["metadata"] else []
    if "allocation" not in status:
        return ",".join([*states, "pending"])
    return ",".join([*states, "allocated", *(["reserved"] if status.get("reservedFor") else [])])


def _containers(field: str) -> Callable[[JsonObject], str]:
    find = _at(".spec.template.spec.containers", ())

    def cell(obj: JsonObject) -> str:
        containers = find(obj) or ()
        return ",".join(each.get(field, "") for each in containers)

    return cell


def _selector(path: str) -> Callable[[JsonObject], str]:
    find = _at(path, None)
    return lambda obj: format_label_selector(find(obj)) or "<none>"


_TEMPLATE = (
    _column("Containers", _containers("name"), wide=True),
    _column("Images", _containers("image"), wide=True),
    _column("Selector", _selector(".spec.selector"), wide=True),
)


def _deployment_ready(obj: JsonObject) -> str:
    return f"{obj.get('status', {}).get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"


_SHOWN_PORTS = 3


def _listed(texts: Iterable[str], *, missing: str) -> str:
    """List the first few of many."""
    every = list(texts)
    more = f" + {len(every) - _SHOWN_PORTS} more..." if len(every) > _SHOWN_PORTS else ""
    return ",".join(every[:_SHOWN_PORTS]) + more if every else missing


def _slice_ports(obj: JsonObject) -> str:
    return _listed((str(port.get("port") or "*") for port in obj.get("ports") or ()), missing="<unset>")


def _slice_endpoints(obj: JsonObject) -> str:
    addresses = (address for each in obj.get("endpoints") or () for address in each.get("addresses") or ())
    return _listed(addresses, missing="<unset>")


PLAIN = (NAME, AGE)
PODS = (
    NAME,
    _column("Ready", pod_summary.readiness),
    _column("Status", pod_summary.state),
    Column("Restarts", "string", "", "Restarts", 0, pod_summary.restarts),
    AGE,
    _column("IP", _at(".status.podIP"), wide=True),
    _column("Node", _at(".spec.nodeName"), wide=True),
    _column("Nominated Node", _at(".status.nominatedNodeName"), wide=True),
    _column("Readiness Gates", _readiness_gates, wide=True),
)
JOBS = (
    NAME,
    _column("Status", _job_status),
    _column("Completions", _job_completions),
    Column("Duration", "string", "", "Time from start to completion", 0, _job_duration),
    AGE,
)
EVENTS = (
    Column("Last Seen", "string", "", "Time since the last occurrence", 0, _event_last_seen),
    _column("Type", _at(".type", "")),
    _column("Reason", _at(".reason", "")),
    _column("Object", _event_object),
    _column("Message", lambda obj: obj.get("message") or obj.get("note") or ""),
    Column("Name", "string", "name", "Name of the event", 1, lambda obj, _now: obj["metadata"]["name"]),
)
NAMESPACES = (NAME, _column("Status", _at(".status.phase", "")), AGE)
NODES = (
    NAME,
    _column("Status", _node_status),
    _column("Roles", _node_roles),
    AGE,
    _column("Version", _at(".status.nodeInfo.kubeletVersion", "")),
)
CONFIGMAPS = (
    NAME,
    _column("Data", lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), kind="integer"),
    AGE,
)
SECRETS = (
    NAME,
    _column("Type", _at(".type", "")),
    _column("Data", lambda obj: len(obj.get("data") or ()), kind="integer"),
    AGE,
)
SERVICES = (
    NAME,
    _column("Type", _at(".spec.type", "")),
    _column("Cluster-IP", _at(".spec.clusterIP")),
    _column("External-IP", lambda _obj: "<none>"),
    _column("Port(s)", _service_ports),
    AGE,
)
PERSISTENT_VOLUME_CLAIMS = (
    NAME,
    _column("Status", _at(".status.phase", "")),
    _column("Volume", _at(".spec.volumeName", "")),
    _column("Capacity", _at(".status.capacity.storage", "")),
    _column("Access Modes", lambda obj: ",".join(obj.get("status", {}).get("accessModes") or ())),
    _column("StorageClass", _at(".spec.storageClassName", "")),
    AGE,
)
LEASES = (NAME, _column("Holder", _at(".spec.holderIdentity", "")), AGE)
CUSTOM_RESOURCE_DEFINITIONS = (NAME, _column("Created At", _at(".metadata.creationTimestamp", "")))
PRIORITY_CLASSES = (
    NAME,
    _column("Value", _at(".value", 0), kind="integer"),
    _column("Global-Default", _at(".globalDefault", False), kind="boolean"),
    AGE,
)
DEPLOYMENTS = (
    NAME,
    _column("Ready", _deployment_ready),
    _column("Up-to-date", _at(".status.updatedReplicas", 0), kind="integer"),
    _column("Available", _at(".status.availableReplicas", 0), kind="integer"),
    AGE,
    *_TEMPLATE,
)
REPLICA_SETS = (
    NAME,
    _column("Desired", _at(".spec.replicas", 0), kind="integer"),
    _column("Current", _at(".status.replicas", 0), kind="integer"),
    _column("Ready", _at(".status.readyReplicas", 0), kind="integer"),
    AGE,
    *_TEMPLATE,
)
ENDPOINT_SLICES = (
    NAME,
    _column("AddressType", _at(".addressType", "")),
    _column("Ports", _slice_ports),
    _column("Endpoints", _slice_endpoints),
    AGE,
)
POD_DISRUPTION_BUDGETS = (
    NAME,
    _column("Min Available", lambda obj: str(obj["spec"].get("minAvailable", "N/A"))),
    _column("Max Unavailable", lambda obj: str(obj["spec"].get("maxUnavailable", "N/A"))),
    _column("Allowed Disruptions", _at(".status.disruptionsAllowed", 0), kind="integer"),
    AGE,
)
NETWORK_POLICIES = (NAME, _column("Pod-Selector", _selector(".spec.podSelector")), AGE)
WEBHOOK_CONFIGURATIONS = (NAME, _column("Webhooks", lambda obj: len(obj.get("webhooks") or ()), kind="integer"), AGE)
RUNTIME_CLASSES = (NAME, _column("Handler", _at(".handler", "")), AGE)
RESOURCE_CLAIMS = (NAME, _column("State", _claim_state), AGE)
