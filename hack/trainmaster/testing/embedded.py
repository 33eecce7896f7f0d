"""The embedded cluster in the process of the tests, on a thread of its own, and managers on it.

What is called here blocks until it is done, and may be called from tests that know no event loop, as from those that
have one.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar

import orjson
import yaml

from trainmaster.controller.configuration import OFF, Configuration, Health, Metrics, Webhook
from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.manager.parts import Setup
from trainmaster.controller.manager.policy_rules import policy_rules
from trainmaster.controller.manager.roles import NAME, roles
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import CRDS, NAMESPACES, GroupResource
from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.crds.install import JOBSET_DEFINITIONS, TRAINER_DEFINITIONS, install_definitions
from trainmaster.devcluster.settings import CONTROLLERS, GARBAGE_COLLECTION, KUBELET, ClusterSettings
from trainmaster.devcluster.state import StateDirectory
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

PATIENCE: Final = 30.0
"""Seconds that is waited for something."""

QUIET: Final = Configuration(
    webhook=Webhook(enabled=False), metrics=Metrics(bind_address=OFF), health=Health(health_probe_bind_address=OFF)
)
"""A configuration without servers, so that several managers fit on one machine."""

WHOLE: Final = (CONTROLLERS, GARBAGE_COLLECTION, KUBELET)
"""The parts of a whole cluster, but for the manager, which a test runs with its plugin."""

_PAUSE: Final = 0.02
MANAGERS_NAMESPACE: Final = "kubeflow-system"
MANAGER_USER: Final = f"system:serviceaccount:{MANAGERS_NAMESPACE}:{NAME}"
"""Whom the API server takes a manager for that runs with its own rights."""

_OPTIONS: Final = WriteOptions(field_manager="trainmaster-testing", force=True)

_Objects: TypeAlias = list[JsonObject]  # inside the class, `list` is a method
_Result = TypeVar("_Result")


class EmbeddedCluster:
    """A running embedded cluster; a context manager.

    Args:
        directory: Where its state and its kubeconfig are.
        parts: What runs beside the API server, see `trainmaster.devcluster.settings`; none: nothing does, so that
            workloads stay as they were written.
        rbac: Whether roles decide what service accounts may do.
        audit_log: Where a line is written for each request, if anywhere.
        patience: Seconds that is waited for something.
    """

    def __init__(
        self,
        directory: Path,
        *,
        parts: Iterable[str] = (),
        rbac: bool = False,
        audit_log: Path | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._patience = patience
        self._state = StateDirectory(directory / "cluster")
        directory.mkdir(parents=True, exist_ok=True)
        self._settings = ClusterSettings(
            state=self._state, port=0, parts=frozenset(parts), rbac=rbac, audit_log=audit_log
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="trainmaster-testing", daemon=True)
        self._cluster = Cluster(self._settings)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._run(self._cluster.stop())
        finally:
            self._end()

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator, for kubectl and clients."""
        return self._state.kubeconfig

    def apply(self, *objects: JsonObject) -> _Objects:
        """Create or change objects, as `kubectl apply --server-side --force-conflicts` does, with their namespaces.

        Returns:
            What the API server has of each.

        Raises:
            StatusError: It refuses one; the text is the server's.
        """
        return [self._run(self._apply(obj)) for obj in objects]

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> JsonObject | None:
        """Return an object; None if there is none, or the kind is not served."""
        try:
            return self._run(self._get(api_version, kind, name, namespace))
        except StatusError as error:
            if error.code == 404:
                return None
            raise

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> _Objects:
        """Return all objects of a kind, of one namespace if given."""
        return self._run(self._list(api_version, kind, namespace))

    def set_status(self, obj: JsonObject, status: JsonObject) -> None:
        """Merge something into the status of an object, as the controller of its kind would.

        Raises:
            StatusError: There is no such object, or the server refuses the status.
        """
        self._run(self._set_status(obj, status))

    def delete(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete an object, if there is one. Without the part `gc` what it owns stays."""
        with suppress(StatusError):
            self._run(self._delete(api_version, kind, name, namespace))

    def wait_for(self, condition: Callable[[], _Result | None], what: str) -> _Result:
        """Wait until a function returns something true, and return that.

        Raises:
            AssertionError: It did not in time; the message says `what`.
        """
        end = time.monotonic() + self._patience
        while not (result := condition()):
            if time.monotonic() > end:
                raise AssertionError(f"waited {self._patience:.0f} seconds for {what}, in vain")
            time.sleep(_PAUSE)
        return result

    def wait_for_object(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> JsonObject:
        """Wait until there is an object, and return it.

        Raises:
            AssertionError: There was none in time; the message has the conditions of the TrainJobs.
        """
        try:
            return self.wait_for(lambda: self.get(api_version, kind, name, namespace), f"{kind} {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.told()}") from error

    def told(self) -> str:
        """Say what the conditions of all TrainJobs say, for messages."""
        lines = [
            f"TrainJob {job['metadata']['name']}: {each['type']}={each['status']} {each.get('message', '')}"
            for job in self.list("trainer.kubeflow.org/v1alpha1", "TrainJob")
            for each in (job.get("status") or {}).get("conditions") or []
        ]
        return "; ".join(lines) or "no TrainJob has a condition"

    @contextmanager
    def manager(
        self, framework: Framework, *, configuration: Configuration = QUIET, own_rights: bool = False
    ) -> Iterator[Manager]:
        """Run a manager in this process while the block runs.

        Args:
            framework: Its plugins.
            configuration: Its configuration.
            own_rights: Whether it gets an account with the rights that it declares, and no other; takes `rbac`.

        Raises:
            RunnableFailed: A part of it has ended.
        """
        access = self._run(self._account(framework, configuration) if own_rights else self._administrator())
        stop = asyncio.Event()
        running = Manager(Setup(access, configuration, framework))
        task = asyncio.run_coroutine_threadsafe(running.run(stop), self._loop)
        try:
            yield running
        finally:
            self._loop.call_soon_threadsafe(stop.set)
            task.result(timeout=PATIENCE)

    # On the thread of the cluster

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=4 * PATIENCE)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        await self._cluster.start()
        await install_definitions(self._cluster.api, (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS))

    async def _apply(self, obj: JsonObject) -> JsonObject:
        api = self._cluster.api
        metadata = obj["metadata"]
        namespace = metadata.get("namespace")
        if namespace:
            await api.patch(
                NAMESPACES, None, namespace, _namespace(namespace), patch_type=PatchType.APPLY, options=_OPTIONS
            )
        resource = self._resource(obj["apiVersion"], obj["kind"])
        clean = {
            **obj,
            "metadata": {key: value for key, value in metadata.items() if key not in ("uid", "managedFields")},
        }
        stored, _ = await api.patch(
            resource, namespace, metadata["name"], clean, patch_type=PatchType.APPLY, options=_OPTIONS
        )
        return stored

    async def _set_status(self, obj: JsonObject, status: JsonObject) -> None:
        resource, metadata = self._resource(obj["apiVersion"], obj["kind"]), obj["metadata"]
        await self._cluster.api.patch(
            resource,
            metadata.get("namespace"),
            metadata["name"],
            {"status": status},
            patch_type=PatchType.MERGE,
            subresource="status",
        )

    async def _get(self, api_version: str, kind: str, name: str, namespace: str | None) -> JsonObject | None:
        resource = self._resource(api_version, kind)
        return self._cluster.api.get(resource, namespace, name)

    async def _list(self, api_version: str, kind: str, namespace: str | None) -> _Objects:
        records, _ = self._cluster.api.list(self._resource(api_version, kind), namespace)
        return [record.object for record in records]

    async def _delete(self, api_version: str, kind: str, name: str, namespace: str | None) -> None:
        await self._cluster.api.delete(self._resource(api_version, kind), namespace, name)

    def _resource(self, api_version: str, kind: str) -> GroupResource:
        group, _, version = api_version.rpartition("/")
        for each in self._cluster.api.registry.kinds():
            if (each.group, each.version, each.kind) == (group, version, kind):
                return GroupResource(each.group, each.plural)
        raise StatusError(404, "NotFound", f"the cluster does not serve {kind} of {api_version}; apply its definition")

    def serves(self, api_version: str, kind: str) -> bool:
        """Tell whether the cluster serves a kind."""
        try:
            self._resource(api_version, kind)
        except StatusError:
            return False
        return True

    def remove_definition(self, name: str) -> None:
        """Delete a CustomResourceDefinition, and all its objects with it."""
        self._run(self._remove_definition(name))

    async def _remove_definition(self, name: str) -> None:
        await self._cluster.api.delete(CRDS, None, name)

    async def _administrator(self) -> RestConfig:
        return await load_config(kubeconfig=str(self.kubeconfig))

    async def _account(self, framework: Framework, configuration: Configuration) -> RestConfig:
        """Make an account that has the rights that a manager declares."""
        namespace = MANAGERS_NAMESPACE
        metadata = {"name": NAME, "namespace": namespace}
        await self._apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        rules = policy_rules(configuration, features=(), watches=framework.watches(), namespace=namespace)
        for obj in roles(rules, namespace=namespace):
            await self._apply(obj)
        async with KubeClient(await self._administrator(), user_agent="trainmaster-testing") as client:
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{NAME}/token"
            _, _, answer = await client.raw("POST", path, body=b'{"spec": {}}')
        document: JsonObject = load_yaml(self.kubeconfig.read_bytes())
        document["users"][0]["user"] = {"token": orjson.loads(answer)["status"]["token"]}
        kubeconfig = self.kubeconfig.with_name("manager.kubeconfig")
        kubeconfig.write_text(yaml.safe_dump(document), encoding="utf-8")
        kubeconfig.chmod(0o600)
        return await load_config(kubeconfig=str(kubeconfig))


def _namespace(name: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
