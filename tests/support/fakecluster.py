"""A server that answers at once and notes what it is asked, for a reconciler whose caches a test fills."""

from collections.abc import Callable
from typing import Any, cast

from support.virtualtime import VirtualClock

from trainmaster.controller.kube.clock import time_text
from trainmaster.controller.kube.rest.errors import AlreadyExists, Conflict, KubeError, NotFound
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.devcluster.apiserver.jsonpatch import merge_patch
from trainmaster.runtime.jsontree import JsonObject, copy_tree


class FakeCluster:
    """The server has what was put or written; the caches show it at once, unless they lag."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.server: dict[tuple[str, str], JsonObject] = {}
        """What the server has, by kind and key."""

        self.requests: list[str] = []
        """The writes, and what else was asked, in order."""

        self.refusals: dict[str, KubeError] = {}
        """What the server answers to a request, by the text that `requests` has of it."""

        self.applied: list[JsonObject] = []
        self.patches: list[JsonObject] = []
        self.deleted: list[tuple[str, str | None]] = []
        """Names and UIDs of what was deleted."""

        self.events: list[str] = []
        self.on_write: Callable[[JsonObject], None] = lambda obj: None
        """What somebody else does when something was written."""

        self.lagging = False
        self._version = 100

    def key(self, namespace: str | None, name: str) -> str:
        """Where the server has an object."""
        return f"{namespace}/{name}" if namespace else name

    def text(self, verb: str, resource: Resource, name: str) -> str:
        """What is noted of a request."""
        return f"{verb} {resource.kind}"

    def show(self, obj: JsonObject) -> None:
        """Have the cache of its kind see an object."""
        raise NotImplementedError

    def remove(self, kind: str, name: str) -> None:
        """Have an object vanish from the server and the caches."""
        raise NotImplementedError

    def store(self, obj: JsonObject) -> JsonObject:
        """Have the server store an object under a new version; the caches see it unless they lag."""
        self._version += 1
        stored: JsonObject = copy_tree(obj)
        metadata = stored["metadata"]
        metadata["resourceVersion"] = str(self._version)
        metadata.setdefault("uid", f"uid-of-{self._version}")
        self.server[stored["kind"], self.key(metadata.get("namespace"), metadata["name"])] = stored
        if not self.lagging:
            self.show(stored)
        return cast("JsonObject", copy_tree(stored))

    # The client

    async def get(
        self, resource: Resource, namespace: str | None, name: str, *, metadata_only: bool = False
    ) -> JsonObject:
        self._ask(self.text("get", resource, name))
        found = self._found(resource, namespace, name)
        return cast("JsonObject", copy_tree({"metadata": found["metadata"]} if metadata_only else found))

    async def create(self, resource: Resource, obj: JsonObject, *, field_manager: str) -> JsonObject:
        assert field_manager == "trainer"
        name = obj["metadata"]["name"]
        self._ask(self.text("create", resource, name))
        if (resource.kind, self.key(obj["metadata"].get("namespace"), name)) in self.server:
            message = f'{resource.plural} "{name}" already exists'
            raise AlreadyExists(status=409, reason="AlreadyExists", message=message)
        return self.store({**obj, **({"status": {"phase": "Pending"}} if resource == PODS else {})})

    async def apply(self, resource: Resource, obj: JsonObject, *, field_manager: str) -> JsonObject:
        assert field_manager == "trainer"
        metadata = obj["metadata"]
        self._ask(self.text("apply", resource, metadata["name"]))
        self.applied.append(obj)
        old = self.server.get((resource.kind, self.key(metadata.get("namespace"), metadata["name"])))
        if old is None:
            # Whatever version is asked for: that is what makes an apply one that only creates.
            _check({"uid": metadata.get("uid")}, {"metadata": {}})
            old = {"metadata": {}}
        else:
            _check(metadata, old)
        # Enough of server-side apply for these tests: what we send replaces what there is, but for who and since when.
        kept = {name: old["metadata"][name] for name in ("uid",) if name in old["metadata"]}
        others = [entry for entry in old["metadata"].get("managedFields", ()) if entry["manager"] != field_manager]
        kept["managedFields"] = [*others, applied_by(field_manager, obj)]
        status = {"status": old["status"]} if "status" in old else {}
        answer = self.store({**obj, **status, "metadata": metadata | kept})
        self.on_write(answer)
        return answer

    async def patch(
        self, resource: Resource, namespace: str, name: str, patch: JsonObject, *, field_manager: str
    ) -> JsonObject:
        """Merge fields into an object."""
        self._ask(self.text("patch", resource, name))
        old = self._found(resource, namespace, name)
        _check(patch["metadata"], old)
        return self.store(merge_patch(old, patch))

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, patch: JsonObject, *, field_manager: str
    ) -> tuple[JsonObject, str]:
        assert field_manager == "trainer"
        self._ask("patch status")
        self.patches.append(patch)
        old = self._found(resource, namespace, name)
        assert {"uid", "resourceVersion"} == patch["metadata"].keys()
        _check(patch["metadata"], old)
        status = {} if patch["status"] is None else merge_patch(old.get("status") or {}, patch["status"])
        answer = self.store({**old, "status": status})
        self.on_write(answer)
        return answer["status"], answer["metadata"]["resourceVersion"]

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        foreground: bool = False,
    ) -> JsonObject:
        self._ask(self.text("delete", resource, name))
        self.deleted.append((name, uid))
        found = self._found(resource, namespace, name)
        _check({"uid": uid, "resourceVersion": resource_version}, found)
        if foreground:  # until what it owns is gone
            going = {**found["metadata"], "deletionTimestamp": time_text(self.clock.now())}
            return self.store({**found, "metadata": going})
        if self.lagging:
            del self.server[resource.kind, self.key(namespace, name)]
        else:
            self.remove(resource.kind, name)
        return found

    def _found(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        found = self.server.get((resource.kind, self.key(namespace, name)))
        if found is None:
            raise NotFound(status=404)
        return found

    def _ask(self, request: str) -> None:
        self.requests.append(request)
        if request in self.refusals:
            raise self.refusals[request]

    # The recorder

    def event(self, regarding: JsonObject, *, note: str, **arguments: Any) -> None:
        self.events.append(note)


def applied_by(manager: str, obj: JsonObject) -> JsonObject:
    """The entry in the managedFields of an object for who applied it, where every list is atomic."""
    fields = _fields_of({name: value for name, value in obj.items() if name not in {"apiVersion", "kind"}})
    for name in ("name", "namespace", "uid", "resourceVersion"):
        fields["f:metadata"].pop(f"f:{name}", None)
    return {"manager": manager, "operation": "Apply", "apiVersion": obj["apiVersion"], "fieldsV1": fields}


def _fields_of(value: Any) -> JsonObject:
    return {f"f:{name}": _fields_of(below) for name, below in value.items()} if isinstance(value, dict) else {}


def _check(preconditions: JsonObject, obj: JsonObject) -> None:
    for field in ("uid", "resourceVersion"):
        wanted = preconditions.get(field)
        if wanted is not None and wanted != obj["metadata"].get(field):
            raise Conflict(status=409, reason="Conflict", message=f"{field} is not {wanted}")
