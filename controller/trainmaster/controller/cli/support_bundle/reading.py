"""Reading for a bundle: what is refused, not served or not answered is noted in its index, and everything else is read.

Guarantees:
- Nothing is written.
- Of a collection no more is read than was asked for, in pages; that there is more is told.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.controller.cli.probes import list_first
from trainmaster.controller.cli.support_bundle.bundle import Bundle
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject


class Reading:
    """Reads objects of one cluster.

    Args:
        client: How.
        bundle: Where is noted what cannot be read.
    """

    def __init__(self, client: KubeClient, bundle: Bundle) -> None:
        self.client = client
        self.bundle = bundle

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject | None:
        """Read one object; None if it is not there, or cannot be read."""
        what = f"{resource.name} {name}{_in(namespace)}"
        try:
            found = await self.client.get(resource, namespace, name)
        except NotFound:
            self.bundle.lacks(what, "it does not exist")
        except KubeError as error:
            self.failed(what, "get", error)
        else:
            return {"apiVersion": resource.api_version, "kind": resource.kind, **found}
        return None

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        most: int | None = None,
        is_optional: bool = False,
    ) -> tuple[list[JsonObject], str]:
        """Read some objects, and say whether there are more; none if they cannot be read.

        Args:
            resource: Which.
            namespace: Whose; None: of all.
            labels: A label selector.
            fields: A field selector.
            most: How many at most; by default as many as go into the bundle.
            is_optional: Whether a cluster is well without the kind.
        """
        what = f"{resource.name}{_in(namespace) if resource.namespaced else ''}"
        most = self.bundle.most_objects if most is None else most
        try:
            listed = await list_first(self.client, resource, namespace, most=most, labels=labels, fields=fields)
        except NotFound:
            if not is_optional:
                self.bundle.lacks(what, f"this cluster does not serve them: {resource.remedy}")
            return [], ""
        except KubeError as error:
            self.failed(what, "list", error)
            return [], ""
        more = f"; {listed.left} more are there" if listed.left else ""
        return listed.items, "" if listed.is_all else f"the first {most}{more}"

    def failed(self, what: str, verb: str, error: KubeError) -> None:
        """Note why something could not be read."""
        self.bundle.lacks(what, f"you have no right to {verb} it" if isinstance(error, Forbidden) else str(error))


def joined(remarks: Sequence[str]) -> str:
    """Return remarks as one, each once."""
    return "; ".join(dict.fromkeys(filter(None, remarks)))


def _in(namespace: str | None) -> str:
    return f" in namespace {namespace}" if namespace else ""
