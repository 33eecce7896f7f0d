"""What people type: real kubectl against the server, in every supported version that is installed."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainmaster.devcluster.apiserver.resources import (
    CLUSTER_ROLE_BINDINGS,
    CONFIGMAPS,
    JOBS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    GroupResource,
)
from trainmaster.devcluster.testing.envtest import Environment, start_environment

pytestmark = [pytest.mark.nightly, pytest.mark.kubectl]

_THINGS = GroupResource("example.com", "things")
_SUPPORTED = re.compile(r"kubectl\.1\.(29|3[0-3])")
_CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList, shortNames: [th]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Colour, type: string, jsonPath: .spec.colour, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, description: How large the thing is.}
              colour: {type: string, default: red}
          status:
            type: object
            properties:
              size: {type: integer}
              conditions:
                type: array
                items:
                  type: object
                  properties:
                    type: {type: string}
                    status: {type: string}
"""
_THING = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: one, labels: {app: x}}\nspec: {size: 1}\n"
_AUTOSCALER = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: one}
spec:
  scaleTargetRef: {apiVersion: example.com/v1, kind: Thing, name: one}
  maxReplicas: 3
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}
"""
_CONFIGMAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, labels: {app: x}}\ndata: {colour: red}\n"


def _binaries() -> list[str]:
    """Find kubectl on PATH, or of the versions beside it that some distributions ship the oldest and the newest.

    What those in between ask for, one of these does.
    """
    found = shutil.which("kubectl")
    if found is None:
        return []
    beside = sorted(str(path) for path in Path(found).resolve().parent.iterdir() if _SUPPORTED.fullmatch(path.name))
    return [beside[0], beside[-1]] if len(beside) > 1 else beside or [found]


@dataclass(frozen=True, slots=True)
class _Result:
    code: int
    out: str
    err: str


Kubectl = Callable[..., Coroutine[Any, Any, _Result]]


@pytest.fixture(params=_binaries() or [""], ids=lambda path: Path(path).name or "missing")
def binary(request: pytest.FixtureRequest) -> str:
    """One of the installed versions."""
    found: str = request.param
    if not found:
        pytest.skip("there is no kubectl on PATH")
    return found


@pytest.fixture
def kubectl(binary: str, devcluster_server: Environment, tmp_path: Path) -> Kubectl:
    """A function that runs kubectl against the server."""
    return _kubectl(binary, devcluster_server, tmp_path)


def _kubectl(binary: str, server: Environment, tmp_path: Path) -> Kubectl:
    """Return a function that runs kubectl with a home and a cache of its own; failures must be asked for."""

    async def run(*arguments: str, stdin: str = "", code: int = 0) -> _Result:
        process = await asyncio.create_subprocess_exec(
            binary,
            *("--kubeconfig", str(server.kubeconfig), "--cache-dir", str(tmp_path / "cache")),
            *arguments,
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(60):
                out, err = await process.communicate(stdin.encode())
        except TimeoutError:
            process.kill()
            await process.wait()
            pytest.fail(f"kubectl {' '.join(arguments)} did not end")
        result = _Result(process.returncode or 0, out.decode(), err.decode())
        assert result.code == code, f"kubectl {' '.join(arguments)}: {result}"
        return result

    return run


async def test_discovery(kubectl: Kubectl) -> None:
    resources = (await kubectl("api-resources", "--no-headers")).out
    assert re.search(r"^pods +po +v1 +true +Pod$", resources, re.MULTILINE)
    assert re.search(r"^jobs +batch/v1 +true +Job$", resources, re.MULTILINE)
    assert "batch/v1" in (await kubectl("api-versions")).out.split()
    assert "Server Version: v1." in (await kubectl("version")).out
    assert (await kubectl("get", "--raw", "/readyz")).out == "ok"


async def test_apply_and_diff(kubectl: Kubectl, devcluster_server: Environment) -> None:
    assert (await kubectl("apply", "-f", "-", stdin=_CONFIGMAP)).out == "configmap/settings created\n"
    assert (await kubectl("apply", "-f", "-", stdin=_CONFIGMAP)).out == "configmap/settings unchanged\n"
    blue = _CONFIGMAP.replace("red", "blue")
    assert "+  colour: blue" in (await kubectl("diff", "-f", "-", stdin=blue, code=1)).out
    assert (await kubectl("apply", "-f", "-", stdin=blue)).out == "configmap/settings configured\n"
    assert devcluster_server.api.get(CONFIGMAPS, "default", "settings")["data"] == {"colour": "blue"}
    await kubectl("diff", "-f", "-", stdin=blue)


async def test_server_side_apply(kubectl: Kubectl, devcluster_server: Environment) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    assert "serverside-applied" in (await kubectl(*apply, stdin=_CONFIGMAP)).out
    blue = _CONFIGMAP.replace("red", "blue")
    conflict = await kubectl(*apply, "--field-manager=other", stdin=blue, code=1)
    assert 'conflict with "kubectl": .data.colour' in conflict.err
    await kubectl(*apply, "--field-manager=other", "--force-conflicts", stdin=blue)
    assert devcluster_server.api.get(CONFIGMAPS, "default", "settings")["data"] == {"colour": "blue"}


async def test_validation_is_the_servers(kubectl: Kubectl) -> None:
    unknown = await kubectl("create", "-f", "-", stdin=_CONFIGMAP + "bogus: 1\n", code=1)
    assert 'strict decoding error: unknown field "bogus"' in unknown.err
    await kubectl("create", "-f", "-", "--validate=warn", stdin=_CONFIGMAP + "bogus: 1\n")
    again = await kubectl("create", "-f", "-", stdin=_CONFIGMAP, code=1)
    assert 'configmaps "settings" already exists' in again.err


async def test_output_formats(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=_CRD)
    await kubectl("create", "-f", "-", stdin=_THING)
    assert (await kubectl("get", "th")).out.split() == ["NAME", "SIZE", "one", "1"]
    assert (await kubectl("get", "th", "-o", "wide")).out.split() == ["NAME", "SIZE", "COLOUR", "one", "1", "red"]
    assert "size: 1" in (await kubectl("get", "th", "one", "-o", "yaml")).out
    assert orjson.loads((await kubectl("get", "things", "-o", "json")).out)["items"][0]["spec"]["colour"] == "red"
    assert (await kubectl("get", "th", "-o", "name")).out == "thing.example.com/one\n"
    columns = await kubectl("get", "th", "-o", "custom-columns=N:.metadata.name,S:.spec.size")
    assert columns.out.split() == ["N", "S", "one", "1"]
    assert (await kubectl("get", "th", "-l", "app=y")).err == "No resources found in default namespace.\n"
    assert (await kubectl("get", "th", "-A", "--no-headers")).out.split() == ["default", "one", "1"]
    missing = await kubectl("get", "th", "two", code=1)
    assert 'things.example.com "two" not found' in missing.err


async def test_describe(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=_CRD)
    await kubectl("apply", "-f", "-", stdin=_THING)
    described = (await kubectl("describe", "thing", "one")).out
    assert "Kind:         Thing" in described
    assert re.search(r"Events: +<none>", described)


async def test_label_annotate_and_patch(kubectl: Kubectl, devcluster_server: Environment) -> None:
    await kubectl("create", "-f", "-", stdin=_CONFIGMAP)
    await kubectl("label", "cm", "settings", "tier=front", "app-")
    await kubectl("annotate", "cm", "settings", "note=hello")
    await kubectl("patch", "cm", "settings", "-p", '{"data":{"a":"1"}}')
    await kubectl("patch", "cm", "settings", "--type=merge", "-p", '{"data":{"b":"2"}}')
    operation = '[{"op":"replace","path":"/data/colour","value":"blue"}]'
    await kubectl("patch", "cm", "settings", "--type=json", "-p", operation)
    stored = devcluster_server.api.get(CONFIGMAPS, "default", "settings")
    assert stored["metadata"]["labels"] == {"tier": "front"}
    assert stored["metadata"]["annotations"] == {"note": "hello"}
    assert stored["data"] == {"colour": "blue", "a": "1", "b": "2"}


async def test_replace_delete(kubectl: Kubectl, devcluster_server: Environment) -> None:
    await kubectl("create", "-f", "-", stdin=_CONFIGMAP)
    assert "replaced" in (await kubectl("replace", "-f", "-", stdin=_CONFIGMAP.replace("red", "green"))).out
    assert devcluster_server.api.get(CONFIGMAPS, "default", "settings")["data"] == {"colour": "green"}
    assert 'configmap "settings" deleted' in (await kubectl("delete", "cm", "settings")).out
    await kubectl("create", "-f", "-", stdin=_CONFIGMAP)
    assert 'configmap "settings" deleted' in (await kubectl("delete", "cm", "-l", "app=x")).out
    assert devcluster_server.api.list(CONFIGMAPS, "default")[0] == []


async def test_wait_sees_a_condition_and_a_deletion(kubectl: Kubectl, devcluster_server: Environment) -> None:
    await kubectl("create", "-f", "-", stdin=_CRD)
    await kubectl("wait", "--for=condition=Established", "crd/things.example.com", "--timeout=30s")
    await kubectl("create", "-f", "-", stdin=_THING)
    waiting = asyncio.create_task(kubectl("wait", "--for=condition=Done", "thing/one", "--timeout=30s"))
    status = '{"status":{"conditions":[{"type":"Done","status":"True"}]}}'
    await kubectl("patch", "thing", "one", "--subresource=status", "--type=merge", "-p", status)
    assert "condition met" in (await waiting).out
    waiting = asyncio.create_task(kubectl("wait", "--for=delete", "thing/one", "--timeout=30s"))
    await asyncio.gather(waiting, devcluster_server.api.delete(_THINGS, "default", "one"))


async def test_delete_waits_for_finalizers(kubectl: Kubectl, devcluster_server: Environment) -> None:
    held = _CONFIGMAP.replace("labels:", "finalizers: [example.com/hold], labels:")
    await kubectl("create", "-f", "-", stdin=held)
    deleting = asyncio.create_task(kubectl("delete", "cm", "settings", "--timeout=30s"))
    async with asyncio.timeout(30):
        watch = devcluster_server.api.watch(CONFIGMAPS, namespace="default", since=None)
        async for event in watch:
            if event.object is not None and "deletionTimestamp" in event.object["metadata"]:
                break
        watch.close()
    assert not deleting.done()
    await kubectl("patch", "cm", "settings", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    await deleting


async def test_get_watch_prints_changes_as_they_come(
    kubectl: Kubectl, binary: str, devcluster_server: Environment, tmp_path: Path
) -> None:
    await kubectl("create", "-f", "-", stdin=_CONFIGMAP)
    process = await asyncio.create_subprocess_exec(
        binary,
        *("--kubeconfig", str(devcluster_server.kubeconfig), "--cache-dir", str(tmp_path / "cache")),
        *("get", "cm", "--watch", "--output-watch-events"),
        env={"HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert (await process.stdout.readline()).split()[:2] == [b"EVENT", b"NAME"]
            assert (await process.stdout.readline()).split()[:2] == [b"ADDED", b"settings"]
            await devcluster_server.api.create(CONFIGMAPS, {"metadata": {"name": "next"}}, namespace="default")
            assert (await process.stdout.readline()).split()[:2] == [b"ADDED", b"next"]
            await devcluster_server.api.delete(CONFIGMAPS, "default", "next")
            assert (await process.stdout.readline()).split()[:2] == [b"DELETED", b"next"]
    finally:
        process.kill()
        await process.wait()


async def test_explain(kubectl: Kubectl) -> None:
    assert "restartPolicy" in (await kubectl("explain", "pod.spec")).out
    await kubectl("create", "-f", "-", stdin=_CRD)
    explained = (await kubectl("explain", "thing.spec.size")).out
    assert "FIELD: size <integer>" in explained
    assert "How large the thing is." in explained
    assert "size" in (await kubectl("explain", "--recursive", "things")).out


async def test_run_and_what_only_a_real_cluster_can_do(kubectl: Kubectl, devcluster_server: Environment) -> None:
    await kubectl("run", "p", "--image=busybox", "--restart=Never")
    assert devcluster_server.api.get(PODS, "default", "p")["spec"]["containers"][0]["image"] == "busybox"
    assert (await kubectl("get", "pods", "--no-headers")).out.split()[:3] == ["p", "0/1", "Pending"]
    refused = await kubectl("exec", "p", "--", "ls", code=1)
    assert "does not implement the exec subresource of pods" in refused.err


async def test_generators(kubectl: Kubectl, devcluster_server: Environment, tmp_path: Path) -> None:
    """From 1.32 on these send protobuf."""
    api = devcluster_server.api
    (tmp_path / "binary").write_bytes(b"\xff\0")
    await kubectl("create", "namespace", "team")
    await kubectl("create", "configmap", "cm", "--from-literal=a=1", f"--from-file={tmp_path / 'binary'}")
    await kubectl("create", "secret", "generic", "s", "--from-literal=a=1")
    await kubectl("create", "serviceaccount", "me")
    await kubectl("create", "service", "clusterip", "svc", "--tcp=80:web")
    await kubectl("create", "priorityclass", "high", "--value=7", "--description=d")
    await kubectl("create", "job", "j", "--image=i", "--", "echo", "hello")
    await kubectl("create", "role", "r", "--verb=get,list", "--resource=pods,jobs.batch", "--resource-name=x")
    await kubectl("create", "rolebinding", "rb", "--role=r", "--serviceaccount=default:me", "--group=staff")
    await kubectl("create", "clusterrole", "cr", "--verb=get", "--non-resource-url=/metrics")
    await kubectl("create", "clusterrolebinding", "crb", "--clusterrole=cr", "--user=ann")
    assert api.get(NAMESPACES, None, "team")["status"] == {"phase": "Active"}
    assert api.get(CONFIGMAPS, "default", "cm")["data"] == {"a": "1"}
    assert api.get(CONFIGMAPS, "default", "cm")["binaryData"] == {"binary": "/wA="}
    assert api.get(SECRETS, "default", "s")["data"] == {"a": "MQ=="}
    assert api.get(SERVICE_ACCOUNTS, "default", "me")
    port = {"name": "80-web", "port": 80, "protocol": "TCP", "targetPort": "web"}
    assert api.get(SERVICES, "default", "svc")["spec"]["ports"] == [port]
    high = api.get(PRIORITY_CLASSES, None, "high")
    assert (high["value"], high["description"], high["preemptionPolicy"]) == (7, "d", "PreemptLowerPriority")
    (container,) = api.get(JOBS, "default", "j")["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["command"]) == ("i", ["echo", "hello"])
    assert {"verbs": ["get", "list"], "apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": ["x"]} in api.get(
        ROLES, "default", "r"
    )["rules"]
    subjects = api.get(ROLE_BINDINGS, "default", "rb")["subjects"]
    assert {each["kind"]: each["name"] for each in subjects} == {"Group": "staff", "ServiceAccount": "me"}
    binding = api.get(CLUSTER_ROLE_BINDINGS, None, "crb")
    assert (binding["roleRef"]["name"], binding["subjects"][0]["name"]) == ("cr", "ann")
    again = await kubectl("create", "namespace", "team", code=1)
    assert 'namespaces "team" already exists' in again.err


async def test_tokens(kubectl: Kubectl, devcluster_server: Environment) -> None:
    await kubectl("create", "serviceaccount", "me")
    token = (await kubectl("create", "token", "me")).out.strip()
    assert devcluster_server.tokens.authenticate_token(token)[0].name == "system:serviceaccount:default:me"
    who = await kubectl("--token", token, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert who.out == "system:serviceaccount:default:me"
    await kubectl("run", "p", "--image=i", '--overrides={"spec":{"serviceAccountName":"me"}}')
    bound = ("--bound-object-kind=Pod", "--bound-object-name=p", "--audience=a", "--duration=20m")
    token = (await kubectl("create", "token", "me", *bound)).out.strip()
    user, _ = devcluster_server.tokens.authenticate_token(token, audiences=["a"])
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    short = await kubectl("create", "token", "me", "--duration=1m", code=1)
    assert "may not specify a duration less than 10 minutes" in short.err


async def test_who_may_what(kubectl: Kubectl) -> None:
    assert (await kubectl("auth", "can-i", "create", "pods")).out == "yes\n"
    assert (await kubectl("auth", "can-i", "get", "/metrics")).out == "yes\n"
    assert "*.*" in (await kubectl("auth", "can-i", "--list")).out
    assert "trainmaster-admin" in (await kubectl("auth", "whoami")).out
    assert "ann" in (await kubectl("auth", "whoami", "--as=ann", "--as-group=staff")).out


async def test_autoscale(kubectl: Kubectl, binary: str) -> None:
    await kubectl("apply", "-f", "-", stdin=_CRD)
    await kubectl("apply", "-f", "-", stdin=_THING)
    if binary.endswith(".33"):  # earlier ones want autoscaling/v1
        made = (await kubectl("autoscale", "thing", "one", "--min=1", "--max=3", "--cpu-percent=70")).out
        assert made == "horizontalpodautoscaler.autoscaling/one autoscaled\n"
    else:
        await kubectl("apply", "-f", "-", stdin=_AUTOSCALER)
    header, row = (await kubectl("get", "hpa")).out.splitlines()
    assert header.split() == ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]
    assert row.split()[:7] == ["one", "Thing/one", "cpu:", "<unknown>/70%", "1", "3", "0"]
    described = (await kubectl("describe", "hpa", "one")).out
    assert re.search(r"Reference: +Thing/one", described)
    assert re.search(r"Max replicas: +3", described)
    assert "deleted" in (await kubectl("delete", "hpa", "one")).out


async def test_scale(kubectl: Kubectl, devcluster_server: Environment) -> None:
    await kubectl("create", "-f", "-", stdin=_CRD)
    await kubectl("create", "-f", "-", stdin=_THING)
    assert (await kubectl("scale", "thing/one", "--replicas=3")).out == "thing.example.com/one scaled\n"
    assert devcluster_server.api.get(_THINGS, "default", "one")["spec"]["size"] == 3
    await kubectl("scale", "thing/one", "--current-replicas=3", "--replicas=4")
    assert devcluster_server.api.get(_THINGS, "default", "one")["spec"]["size"] == 4
    refused = await kubectl("scale", "thing/one", "--current-replicas=3", "--replicas=5", code=1)
    assert "Expected replicas to be 3, was 4" in refused.err
    shown = await kubectl("get", "thing", "one", "--subresource=scale", "-o", "jsonpath={.spec.replicas}")
    assert shown.out == "4"


async def test_roles_are_enforced_where_asked_for(binary: str, tmp_path: Path) -> None:
    async with start_environment(tmp_path, rbac=True) as server:
        kubectl = _kubectl(binary, server, tmp_path)
        me = "--as=system:serviceaccount:default:me"
        await kubectl("create", "serviceaccount", "me")
        refused = await kubectl("get", "pods", me, code=1)
        assert refused.err == (
            'Error from server (Forbidden): pods is forbidden: User "system:serviceaccount:default:me" cannot list '
            'resource "pods" in API group "" in the namespace "default"\n'
        )
        assert (await kubectl("auth", "can-i", "list", "pods", me, code=1)).out == "no\n"
        await kubectl("create", "rolebinding", "viewers", "--clusterrole=view", "--serviceaccount=default:me")
        assert (await kubectl("auth", "can-i", "list", "pods", me)).out == "yes\n"
        await kubectl("get", "pods", me)
        listed = (await kubectl("auth", "can-i", "--list", me)).out
        assert re.search(r"^pods +\[\] +\[\] +\[get list watch\]$", listed, re.MULTILINE)
        assert "cannot create resource" in (await kubectl("create", "configmap", "a", me, code=1)).err


async def test_a_kind_that_no_group_has_is_named(kubectl: Kubectl) -> None:
    """kubectl asks for the OpenAPI document of version 2 then; without it, it said to switch validation off."""
    manifest = {"apiVersion": "batch/v1", "kind": "Jobb", "metadata": {"name": "typo"}}
    failed = await kubectl("apply", "-f", "-", stdin=orjson.dumps(manifest).decode(), code=1)
    assert 'no matches for kind "Jobb" in version "batch/v1"' in failed.err
    assert "validate=false" not in failed.err
