"""What people type: real kubectl against the server, in every supported version that is installed."""

import re
import shutil
from pathlib import Path

import orjson
import pytest
from support.devcluster.envtest import Environment, start_environment
from support.kubectl import Kubectl

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
)
from trainmaster.devcluster.crds.install import TRAINING_OPERATOR_DEFINITIONS, definition_file

pytestmark = [pytest.mark.nightly, pytest.mark.kubectl]

_SUPPORTED = re.compile(r"kubectl\.1\.(29|3[0-3])")
_CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, description: How large the thing is.}
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
    return Kubectl(devcluster_server.kubeconfig, tmp_path, program=binary)


async def test_discovery(kubectl: Kubectl) -> None:
    resources = await kubectl("api-resources", "--no-headers")
    assert re.search(r"^pods +po +v1 +true +Pod$", resources, re.MULTILINE)
    assert re.search(r"^jobs +batch/v1 +true +Job$", resources, re.MULTILINE)
    assert "batch/v1" in (await kubectl("api-versions")).split()
    assert "Server Version: v1." in await kubectl("version")
    assert await kubectl("get", "--raw", "/readyz") == "ok"


async def test_what_is_applied_is_compared_on_either_side(kubectl: Kubectl, devcluster_server: Environment) -> None:
    apply = ("apply", "-f", "-")
    assert await kubectl(*apply, stdin=_CONFIGMAP) == "configmap/settings created\n"
    assert await kubectl(*apply, stdin=_CONFIGMAP) == "configmap/settings unchanged\n"
    blue = _CONFIGMAP.replace("red", "blue")
    assert "+  colour: blue" in await kubectl("diff", "-f", "-", stdin=blue, code=1)
    assert await kubectl(*apply, stdin=blue) == "configmap/settings configured\n"
    assert devcluster_server.api.get(CONFIGMAPS, "default", "settings")["data"] == {"colour": "blue"}
    await kubectl("diff", "-f", "-", stdin=blue)
    await kubectl("delete", "configmap", "settings")
    assert "serverside-applied" in await kubectl(*apply, "--server-side", stdin=_CONFIGMAP)
    other = (*apply, "--server-side", "--field-manager=other")
    assert 'conflict with "kubectl": .data.colour' in await kubectl(*other, stdin=blue, code=1)
    await kubectl(*other, "--force-conflicts", stdin=blue)
    assert devcluster_server.api.get(CONFIGMAPS, "default", "settings")["data"] == {"colour": "blue"}


@pytest.mark.defect("V1-B40")
async def test_definitions_of_jobs_are_applied_explained_and_scaled(kubectl: Kubectl) -> None:
    """Not by --server-side: the whole definition goes into an annotation. Those of the original do not fit into it."""
    files = [word for name in TRAINING_OPERATOR_DEFINITIONS for word in ("-f", str(definition_file(name)))]
    applied = await kubectl("apply", *files)
    assert (applied.count("created"), "Too long" in applied) == (len(TRAINING_OPERATOR_DEFINITIONS), False)
    for each in orjson.loads(await kubectl("get", "crds", "-o", "json"))["items"]:
        assert orjson.loads(each["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"])["spec"]
    assert "before the job fails" in await kubectl("explain", "pytorchjob.spec.runPolicy.backoffLimit")
    assert "autoscalers" in await kubectl("explain", "pytorchjob.status.replicaStatuses.selector")
    assert "<integer>" in await kubectl("explain", "tfjob.spec.tfReplicaSpecs.replicas")
    worker = {"replicas": 1, "template": {"spec": {"containers": [{"name": "trainer", "image": "a"}]}}}
    for kind, field in (("PyTorchJob", "pytorchReplicaSpecs"), ("TFJob", "tfReplicaSpecs")):
        job = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "demo"}}
        await kubectl("create", "-f", "-", stdin=orjson.dumps({**job, "spec": {field: {"Worker": worker}}}).decode())
    scaled = await kubectl("scale", "pytorchjob/demo", "--current-replicas=1", "--replicas=3")
    assert scaled == "pytorchjob.kubeflow.org/demo scaled\n"
    assert "not found" in await kubectl("scale", "tfjob/demo", "--replicas=3", code=1)


async def test_explain(kubectl: Kubectl) -> None:
    assert "restartPolicy" in await kubectl("explain", "pod.spec")
    await kubectl("create", "-f", "-", stdin=_CRD)
    explained = await kubectl("explain", "thing.spec.size")
    assert "FIELD: size <integer>" in explained
    assert "How large the thing is." in explained
    assert "size" in await kubectl("explain", "--recursive", "things")


async def test_run_and_what_only_a_real_cluster_can_do(kubectl: Kubectl, devcluster_server: Environment) -> None:
    await kubectl("run", "p", "--image=busybox", "--restart=Never")
    assert devcluster_server.api.get(PODS, "default", "p")["spec"]["containers"][0]["image"] == "busybox"
    assert (await kubectl("get", "pods", "--no-headers")).split()[:3] == ["p", "0/1", "Pending"]
    assert "does not implement the attach subresource of pods" in await kubectl("attach", "p", code=1)


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
    assert 'namespaces "team" already exists' in await kubectl("create", "namespace", "team", code=1)


async def test_tokens(kubectl: Kubectl, devcluster_server: Environment) -> None:
    await kubectl("create", "serviceaccount", "me")
    token = (await kubectl("create", "token", "me")).strip()
    assert devcluster_server.tokens.authenticate_token(token)[0].name == "system:serviceaccount:default:me"
    who = await kubectl("--token", token, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert who == "system:serviceaccount:default:me"
    await kubectl("run", "p", "--image=i", '--overrides={"spec":{"serviceAccountName":"me"}}')
    bound = ("--bound-object-kind=Pod", "--bound-object-name=p", "--audience=a", "--duration=20m")
    token = (await kubectl("create", "token", "me", *bound)).strip()
    user, _ = devcluster_server.tokens.authenticate_token(token, audiences=["a"])
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    short = await kubectl("create", "token", "me", "--duration=1m", code=1)
    assert "may not specify a duration less than 10 minutes" in short


async def test_who_may_what(kubectl: Kubectl) -> None:
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert await kubectl("auth", "can-i", "get", "/metrics") == "yes\n"
    assert "*.*" in await kubectl("auth", "can-i", "--list")
    assert "trainmaster-admin" in await kubectl("auth", "whoami")
    assert "ann" in await kubectl("auth", "whoami", "--as=ann", "--as-group=staff")


async def test_roles_are_enforced_where_asked_for(binary: str, tmp_path: Path) -> None:
    async with start_environment(tmp_path, rbac=True) as server:
        kubectl = Kubectl(server.kubeconfig, tmp_path, program=binary)
        me = "--as=system:serviceaccount:default:me"
        await kubectl("create", "serviceaccount", "me")
        refused = await kubectl("get", "pods", me, code=1)
        assert refused == (
            'Error from server (Forbidden): pods is forbidden: User "system:serviceaccount:default:me" cannot list '
            'resource "pods" in API group "" in the namespace "default"\n'
        )
        assert await kubectl("auth", "can-i", "list", "pods", me, code=1) == "no\n"
        await kubectl("create", "rolebinding", "viewers", "--clusterrole=view", "--serviceaccount=default:me")
        assert await kubectl("auth", "can-i", "list", "pods", me) == "yes\n"
        await kubectl("get", "pods", me)
        listed = await kubectl("auth", "can-i", "--list", me)
        assert re.search(r"^pods +\[\] +\[\] +\[get list watch\]$", listed, re.MULTILINE)
        assert "cannot create resource" in await kubectl("create", "configmap", "a", me, code=1)


async def test_a_kind_that_no_group_has_is_named(kubectl: Kubectl) -> None:
    """kubectl asks for the OpenAPI document of version 2 then; without it, it said to switch validation off."""
    manifest = {"apiVersion": "batch/v1", "kind": "Jobb", "metadata": {"name": "typo"}}
    failed = await kubectl("apply", "-f", "-", stdin=orjson.dumps(manifest).decode(), code=1)
    assert 'no matches for kind "Jobb" in version "batch/v1"' in failed
    assert "validate=false" not in failed
