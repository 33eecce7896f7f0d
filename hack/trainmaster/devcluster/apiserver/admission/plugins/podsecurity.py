"""Pod security: new pods keep to the level that a namespace enforces, by the Pod Security Standards.

`pod-security.kubernetes.io/enforce` decides; the labels for audits and warnings have no effect. All versions of the
standards are judged as the latest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.core.namespace import ENFORCE_LABEL
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Api, Operation
from trainmaster.devcluster.apiserver.resources import NAMESPACES, PODS
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
_DEFAULT_CAPABILITIES = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
_RESTRICTED_VOLUMES = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim"),
        *("projected", "secret"),
    }
)
_SECCOMP = ("RuntimeDefault", "Localhost")


def pod_admission(api: Api) -> AdmissionHook:
    """Return the hook for pods."""

    def admit(operation: Operation, pod: JsonObject, _old: JsonObject | None) -> JsonObject:
        namespace = api.store.get(ObjectKey(NAMESPACES, "", pod["metadata"].get("namespace", "")))
        if operation == "CREATE" and namespace is not None:
            labels = namespace.object["metadata"].get("labels") or {}
            level = labels.get(ENFORCE_LABEL, "privileged")
            if problems := list(violations(pod["spec"], level)):
                version = labels.get(f"{ENFORCE_LABEL}-version", "latest")
                text = f'violates PodSecurity "{level}:{version}": {", ".join(problems)}'
                raise errors.forbidden(text, resource=PODS, name=pod["metadata"].get("name", ""))
        return pod

    return admit


def violations(spec: JsonObject, level: str) -> Iterator[str]:
    """Return what of a pod spec a level forbids, in the words of the real server."""
    if level == "privileged":
        return
    yield from _baseline(spec)
    if level == "restricted":
        yield from _restricted(spec)


def _containers(spec: JsonObject) -> Iterator[tuple[JsonObject, JsonObject]]:
    """Yield all containers, each with its security context."""
    for field in _CONTAINERS:
        for container in spec.get(field) or ():
            yield container, container.get("securityContext") or {}


def _named(names: Iterable[str], must: str) -> str:
    quoted = [errors.quote(name) for name in names]
    return f"container{'s' if len(quoted) > 1 else ''} {', '.join(quoted)} must {must}"


def _baseline(spec: JsonObject) -> Iterator[str]:
    if found := [f"{field}=true" for field in _HOST_NAMESPACES if spec.get(field)]:
        yield f"host namespaces ({', '.join(found)})"
    if names := [each["name"] for each, context in _containers(spec) if context.get("privileged")]:
        yield f"privileged ({_named(names, 'not set securityContext.privileged=true')})"
    for container, context in _containers(spec):
        added = set((context.get("capabilities") or {}).get("add") or ()) - _DEFAULT_CAPABILITIES
        if added:
            listed = ", ".join(map(errors.quote, sorted(added)))
            must = f"not include {listed} in securityContext.capabilities.add"
            yield f"non-default capabilities ({_named([container['name']], must)})"
        ports = ", ".join(str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort"))
        if ports:
            yield f"hostPort ({_named([container['name']], f'not use hostPorts {ports}')})"
    if names := [volume["name"] for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]:
        yield f"hostPath volumes (volume {', '.join(map(errors.quote, names))})"
    if any(_seccomp(context) == "Unconfined" for context in (_of_pod(spec), *(each for _, each in _containers(spec)))):
        yield 'seccompProfile (must not set securityContext.seccompProfile.type to "Unconfined")'


def _restricted(spec: JsonObject) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        kinds = [kind for kind in volume if kind != "name" and kind not in _RESTRICTED_VOLUMES]
        if kinds:
            yield f"restricted volume types (volume {errors.quote(volume['name'])} uses {', '.join(kinds)})"
    containers = list(_containers(spec))
    rises = [each["name"] for each, context in containers if context.get("allowPrivilegeEscalation") is not False]
    if rises:
        must = "set securityContext.allowPrivilegeEscalation=false"
        yield f"allowPrivilegeEscalation != false ({_named(rises, must)})"
    capable = [each["name"] for each, context in containers if not _drops_all(context.get("capabilities") or {})]
    if capable:
        must = 'set securityContext.capabilities.drop=["ALL"] and add nothing but "NET_BIND_SERVICE"'
        yield f"unrestricted capabilities ({_named(capable, must)})"
    pod = _of_pod(spec)
    roots = [
        each["name"] for each, context in containers if context.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True
    ]
    if roots:
        yield f"runAsNonRoot != true (pod or {_named(roots, 'set securityContext.runAsNonRoot=true')})"
    if 0 in (pod.get("runAsUser"), *(context.get("runAsUser") for _, context in containers)):
        yield "runAsUser=0 (pod and containers must not set securityContext.runAsUser=0)"
    open_ = [each["name"] for each, context in containers if (_seccomp(context) or _seccomp(pod)) not in _SECCOMP]
    if open_:
        must = 'set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
        yield f"seccompProfile (pod or {_named(open_, must)})"


def _of_pod(spec: JsonObject) -> JsonObject:
    context: JsonObject = spec.get("securityContext") or {}
    return context


def _seccomp(context: JsonObject) -> str:
    return str((context.get("seccompProfile") or {}).get("type") or "")


def _drops_all(capabilities: JsonObject) -> bool:
    added = capabilities.get("add") or ()
    return "ALL" in (capabilities.get("drop") or ()) and all(each == "NET_BIND_SERVICE" for each in added)
