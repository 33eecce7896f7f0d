"""Objects in comparable form: what differs from run to run is named by order of appearance, or left out.

The recorder of the cases normalised so; what is compared here has to be treated alike.

- UIDs of owners become `<Kind/name>` of a job of the case, or `<other>`; `incarnation` counts the objects that were
  seen under one name; `startTime` and `completionTime` become `<t1>`, `<t2>` in order of first sight.
- What an API server fills in is left out: defaults of pods, families of addresses.
- Ports, rules and lists of supported values are sorted. Environment, volumes, containers and conditions keep their
  order.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from trainmaster.runtime.jsontree import JsonObject, copy_tree

JOB_KINDS: Final = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "JAXJob", "PaddleJob")

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_COUNTED: Final = frozenset({"pods", "services", "hpas", "volcanopodgroups", "schedpodgroups"})
"""Sections in which a deleted object may come back under its name."""

_SUPPORTED: Final = re.compile(r'supported values: ("[^"]*"(?:, "[^"]*")*)')


class Normaliser:
    """Normalises the objects of one case, all stages of it."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._jobs: dict[str, str] = {}
        self._seen: dict[tuple[str, ...], list[str]] = {}

    def note_job(self, job: JsonObject) -> None:
        """Remember a job that the case created."""
        self._jobs[job["metadata"]["uid"]] = f"<{job['kind']}/{job['metadata']['name']}>"

    def job(self, job: JsonObject, state: str) -> JsonObject:
        """Normalise a job, with what `kubectl get` shows as its state."""
        status = dict(job.get("status") or {})
        for moment in ("startTime", "completionTime"):
            if status.get(moment):
                status[moment] = f"<t{self._number(status[moment], job['kind'], job['metadata']['name'], moment)}>"
        status["conditions"] = [
            {key: condition.get(key, "") for key in ("type", "status", "reason", "message")}
            for condition in status.get("conditions") or ()
        ]
        _drop(status, conditions=[], replicaStatuses={})
        normal = {"metadata": self._metadata(job), "spec": job.get("spec", {}), "status": status, "state": state}
        hidden: JsonObject = self.hide(copy_tree(normal))
        return hidden

    def dependent(self, section: str, given: JsonObject) -> JsonObject:
        """Normalise an object of another kind, named by the section of the case that it belongs to."""
        obj: JsonObject = copy_tree(given)
        normal: JsonObject = {"metadata": self._metadata(obj)}
        if section in _COUNTED:
            metadata = obj["metadata"]
            normal["incarnation"] = self._number(metadata["uid"], section, metadata["name"])
        match section:
            case "pods":
                normal["phase"] = (obj.get("status") or {}).get("phase", "Pending")
                normal["spec"] = _pod_spec(obj["spec"])
            case "services":
                normal["spec"] = _service_spec(obj["spec"])
            case _:
                rest = {"apiVersion", "kind", "metadata", "status"}
                normal |= {key: value for key, value in obj.items() if key not in rest}
        match section:
            case "rolebindings":
                for subject in normal.get("subjects", ()):
                    subject.pop("apiGroup", None)
            case "roles":
                normal["rules"] = [
                    {key: sorted(values) for key, values in rule.items()} for rule in normal.get("rules") or ()
                ]
            case "volcanopodgroups" | "schedpodgroups":
                normal["phase"] = (obj.get("status") or {}).get("phase", "")
                _drop(normal.get("spec", {}), minResources={})
        hidden: JsonObject = self.hide(normal)
        return hidden

    def message(self, text: str) -> str:
        """Normalise the text of a refusal: values of a set have no order."""
        hidden: str = self.hide(text)
        return _SUPPORTED.sub(lambda found: f"supported values: {', '.join(sorted(found[1].split(', ')))}", hidden)

    def hide(self, node: Any) -> Any:
        """Put `NS` in the place of the namespace's name, wherever it occurs."""
        if isinstance(node, str):
            return node.replace(self._namespace, "NS")
        if isinstance(node, list):
            return [self.hide(each) for each in node]
        if isinstance(node, dict):
            return {self.hide(key): self.hide(value) for key, value in node.items()}
        return node

    def _number(self, value: str, *key: str) -> int:
        """Number the values that were seen under a key, from one."""
        seen = self._seen.setdefault(key, [])
        if value not in seen:
            seen.append(value)
        return seen.index(value) + 1

    def _metadata(self, obj: JsonObject) -> JsonObject:
        metadata: JsonObject = obj["metadata"]
        kept: JsonObject = {}
        for field in ("labels", "annotations"):
            if values := {key: value for key, value in (metadata.get(field) or {}).items() if key != _LAST_APPLIED}:
                kept[field] = values
        if metadata.get("finalizers"):
            kept["finalizers"] = metadata["finalizers"]
        if metadata.get("ownerReferences"):
            kept["ownerReferences"] = [
                {**each, "uid": self._jobs.get(each["uid"], "<other>")} for each in metadata["ownerReferences"]
            ]
        if metadata.get("deletionTimestamp"):
            kept["deleting"] = True
        return kept


def _drop(node: JsonObject, **defaults: Any) -> None:
    """Leave out what has its default value."""
    for key, default in defaults.items():
        if node.get(key) == default:
            node.pop(key, None)


_TOLERATIONS: Final = [
    {"effect": "NoExecute", "key": f"node.kubernetes.io/{key}", "operator": "Exists", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]


def _pod_spec(spec: JsonObject) -> JsonObject:
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        _container(container)
    spec["tolerations"] = [each for each in spec.get("tolerations") or () if each not in _TOLERATIONS]
    if spec.get("serviceAccount") == spec.get("serviceAccountName"):
        spec.pop("serviceAccount", None)
    _drop(
        spec,
        tolerations=[],
        dnsPolicy="ClusterFirst",
        schedulerName="default-scheduler",
        securityContext={},
        enableServiceLinks=True,
        terminationGracePeriodSeconds=30,
        preemptionPolicy="PreemptLowerPriority",
        priority=0,
        serviceAccountName="default",
        initContainers=[],
    )
    spec.pop("nodeName", None)
    for volume in spec.get("volumes", ()):
        for source in volume.keys() & {"configMap", "secret", "projected", "downwardAPI"}:
            _drop(volume[source], defaultMode=420)
    return spec


def _container(container: JsonObject) -> None:
    _drop(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        resources={},
        imagePullPolicy=_default_pull_policy(container.get("image", "")),
    )
    _ports(container.get("ports", []), number="containerPort")
    resources = container.get("resources") or {}
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    for variable in container.get("env", ()):
        _drop((variable.get("valueFrom") or {}).get("fieldRef") or {}, apiVersion="v1")


def _default_pull_policy(image: str) -> str:
    name = image.rsplit("/", 1)[-1]
    tagged = "@" in name or (":" in name and not name.endswith(":latest"))
    return "IfNotPresent" if tagged else "Always"


def _service_spec(spec: JsonObject) -> JsonObject:
    for port in spec.get("ports", ()):
        _drop(port, targetPort=port.get("port"))
    _ports(spec.get("ports", []), number="port")
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
        spec.pop(field, None)
    _drop(spec, type="ClusterIP", sessionAffinity="None")
    return spec


def _ports(ports: list[JsonObject], *, number: str) -> None:
    for port in ports:
        _drop(port, protocol="TCP")
    ports.sort(key=lambda port: (port.get("name", ""), port.get(number, 0)))


def sorted_events(events: Iterable[JsonObject]) -> list[str]:
    """Return what events say about jobs, each text once."""
    return sorted(
        {
            f"{each['type']} {each['reason']}: {each['message']}"
            for each in events
            if each["involvedObject"].get("kind") in JOB_KINDS
        }
    )
