"""Pod security: new pods keep to the level that a namespace enforces, by the Pod Security Standards.

`pod-security.kubernetes.io/enforce` decides; the labels for audits and warnings have no effect. All versions of the
standards are judged as the latest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.core import podspec
from trainmaster.devcluster.apiserver.registry.core.namespace import ENFORCE_LABEL
from trainmaster.devcluster.apiserver.registry.generic import AdmissionHook, Api, Operation
from trainmaster.devcluster.apiserver.resources import NAMESPACES, PODS
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.runtime.jsontree import JsonObject

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


def _containers(spec: JsonObject) -> Iterator[tuple[str, JsonObject, JsonObject]]:
    """Yield all containers, each with its name and its security context."""
    for container in podspec.containers(spec):
        yield container.get("name") or "", container, container.get("securityContext") or {}


def _named(names: Iterable[str], must: str) -> str:
    quoted = [errors.quote(name) for name in names]
    return f"container{'s' if len(quoted) > 1 else ''} {', '.join(quoted)} must {must}"


def _baseline(spec: JsonObject) -> Iterator[str]:
    containers = list(_containers(spec))
    if found := [f"{field}=true" for field in _HOST_NAMESPACES if spec.get(field)]:
        yield f"host namespaces ({', '.join(found)})"
    if names := [name for name, _, context in containers if context.get("privileged")]:
        yield f"privileged ({_named(names, 'not set securityContext.privileged=true')})"
    for name, container, context in containers:
        added = set((context.get("capabilities") or {}).get("add") or ()) - _DEFAULT_CAPABILITIES
        if added:
            listed = ", ".join(map(errors.quote, sorted(added)))
            must = f"not include {listed} in securityContext.capabilities.add"
            yield f"non-default capabilities ({_named([name], must)})"
        ports = ", ".join(str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort"))
        if ports:
            yield f"hostPort ({_named([name], f'not use hostPorts {ports}')})"
    for name, source in _volumes(spec):
        if source == "hostPath":
            yield f"hostPath volumes (volume {errors.quote(name)})"
    if "Unconfined" in (_seccomp(_of_pod(spec)), *(_seccomp(context) for _, _, context in containers)):
        yield 'seccompProfile (must not set securityContext.seccompProfile.type to "Unconfined")'


def _restricted(spec: JsonObject) -> Iterator[str]:
    pod, containers = _of_pod(spec), list(_containers(spec))
    for name, source in _volumes(spec):
        if source not in _RESTRICTED_VOLUMES:
            yield f"restricted volume types (volume {errors.quote(name)} uses {source})"
    if names := [name for name, _, context in containers if context.get("allowPrivilegeEscalation") is not False]:
        must = "set securityContext.allowPrivilegeEscalation=false"
        yield f"allowPrivilegeEscalation != false ({_named(names, must)})"
    if names := [name for name, _, context in containers if not _drops_all(context.get("capabilities") or {})]:
        must = 'set securityContext.capabilities.drop=["ALL"] and add nothing but "NET_BIND_SERVICE"'
        yield f"unrestricted capabilities ({_named(names, must)})"
    inherited = pod.get("runAsNonRoot")
    if names := [name for name, _, context in containers if context.get("runAsNonRoot", inherited) is not True]:
        yield f"runAsNonRoot != true (pod or {_named(names, 'set securityContext.runAsNonRoot=true')})"
    if 0 in (pod.get("runAsUser"), *(context.get("runAsUser") for _, _, context in containers)):
        yield "runAsUser=0 (pod and containers must not set securityContext.runAsUser=0)"
    if names := [name for name, _, context in containers if (_seccomp(context) or _seccomp(pod)) not in _SECCOMP]:
        must = 'set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
        yield f"seccompProfile (pod or {_named(names, must)})"


def _volumes(spec: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the sources of all volumes, each with the name of its volume."""
    for volume in spec.get("volumes") or ():
        yield from ((volume.get("name") or "", kind) for kind in volume if kind != "name" and volume[kind] is not None)


def _of_pod(spec: JsonObject) -> JsonObject:
    context: JsonObject = spec.get("securityContext") or {}
    return context


def _seccomp(context: JsonObject) -> str:
    return str((context.get("seccompProfile") or {}).get("type") or "")


def _drops_all(capabilities: JsonObject) -> bool:
    added = capabilities.get("add") or ()
    return "ALL" in (capabilities.get("drop") or ()) and all(each == "NET_BIND_SERVICE" for each in added)
