"""Objects of built-in kinds and of the conformance suite's custom resource, as small as they can be."""

from typing import Any

from support.conformance import unique

from trainmaster.runtime.jsontree import JsonObject

GROUP = f"{unique('g')}.conformance.test"
"""The API group of the Widgets of this process: several may share a cluster."""


def configmap(name: str, data: JsonObject | None = None, **metadata: Any) -> JsonObject:
    """Return a ConfigMap."""
    obj: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return obj if data is None else {**obj, "data": data}


def secret(name: str, **fields: Any) -> JsonObject:
    """Return a Secret."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **fields}


def lease(name: str, **spec: Any) -> JsonObject:
    """Return a Lease."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": "me", **spec},
    }


def service(name: str, **spec: Any) -> JsonObject:
    """Return a Service with one port."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}], **spec},
    }


def pod_spec(*, containers: list[JsonObject] | None = None, **fields: Any) -> JsonObject:
    """Return a pod spec."""
    return {"containers": containers or [{"name": "main", "image": "registry.test/image:1"}], **fields}


def pod(name: str, **spec: Any) -> JsonObject:
    """Return a Pod that no scheduler takes, under the service account `runner`."""
    own = {"schedulerName": "nobody", "serviceAccountName": "runner", "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**pod_spec(**spec), **own}}


def job(name: str, *, template: JsonObject | None = None, **spec: Any) -> JsonObject:
    """Return a suspended Job, so that no controller starts pods for it."""
    pods = template or {"spec": pod_spec(restartPolicy="Never")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"suspend": True, "template": pods, **spec},
    }


def widget(name: str, /, **spec: Any) -> JsonObject:
    """Return a Widget, the custom resource of the conformance suite."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1, **spec}}


def owner_reference(owner: JsonObject, **fields: Any) -> JsonObject:
    """Return a reference to an owner."""
    metadata = owner["metadata"]
    identity = {"name": metadata["name"], "uid": metadata["uid"]}
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **identity, **fields}
