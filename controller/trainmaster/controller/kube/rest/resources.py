"""Resources: the types of objects that an API serves, under which paths, and those of Kubernetes itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from trainmaster.controller.kube.rest.errors import InvalidName
from trainmaster.runtime.names import path_segment

_UNRESERVED: Final = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*")
"""What stands in a path as it is: nearly every name."""

FORWARDED_AUTHORIZATION = "X-Trainmaster-Authorization"
"""The header in which a token comes through the proxy of the API server, which keeps `Authorization` to itself."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource type of the API.

    Attributes:
        group: The API group; empty for the core group.
        kind: What its objects call themselves.
        plural: What paths call it.
        origin: Where its definition comes from, for those who lack it; no part of what it is.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    origin: str = field(default="", compare=False)

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """The name that people, logs and RBAC use: `jobsets.jobset.x-k8s.io`, or `pods` in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def remedy(self) -> str:
        """What to do where the API does not serve it."""
        _, _, domain = self.group.partition(".")
        if not domain or domain == "k8s.io":  # a part of Kubernetes
            return "use a cluster that does"
        definition = f"install the CustomResourceDefinition {self.name}"
        if self.origin:
            return f"{definition}: {self.origin}"
        return f"{definition}, which comes with what that kind belongs to"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of a collection, an object or a subresource; without a namespace it spans all of them.

        Raises:
            InvalidName: The name or the namespace would lead to another path.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.name} is not namespaced; leave out the namespace {namespace!r}")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.name} {name!r} needs a namespace")
        if subresource and not name:
            raise ValueError(f"the subresource {subresource!r} of {self.name} needs an object name")
        path = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace:
            path = f"{path}/namespaces/{_segment('namespace', namespace)}"
        path = f"{path}/{_escaped(self.plural)}"
        if name:
            path = f"{path}/{_segment(f'{self.kind} name', name)}"
        return f"{path}/{_escaped(subresource)}" if subresource else path


def _segment(what: str, name: str) -> str:
    """Return a name as it stands in a path, if it may."""
    if _UNRESERVED.fullmatch(name):
        return name
    if problems := path_segment(name):
        raise InvalidName(f'invalid {what} "{name}": {", ".join(problems)}')
    return quote(name, safe="")


@lru_cache(maxsize=256)
def _escaped(part: str) -> str:
    """Return a part of a path that the API has chosen, one of a few dozen, as it stands there."""
    return part if _UNRESERVED.fullmatch(part) else quote(part, safe="")


CONFIGMAPS = Resource("", "v1", "ConfigMap", "configmaps", namespaced=True)
SECRETS = Resource("", "v1", "Secret", "secrets", namespaced=True)
PODS = Resource("", "v1", "Pod", "pods", namespaced=True)
SERVICES = Resource("", "v1", "Service", "services", namespaced=True)
NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
EVENTS = Resource("events.k8s.io", "v1", "Event", "events", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases", namespaced=True)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)
