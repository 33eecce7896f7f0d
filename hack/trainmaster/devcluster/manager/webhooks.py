"""The admission webhooks of the manager that the cluster runs.

- They are registered when the manager is ready, and unregistered when the cluster starts again: a manager that is not
  there yet keeps nobody from creating TrainJobs. A cluster that calls itself ready has them registered.
- The authority that signs for the manager is made for that, and its key is thrown away.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from trainmaster.devcluster.apiserver.admission.webhook import LocalServices
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, GroupResource
from trainmaster.devcluster.certificates import ensure_certificates, write_private
from trainmaster.devcluster.listener import HOST, free_port
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.yamltext import load_yaml_documents

_SERVICE: Final = "kubeflow-trainer-controller-manager"
_NAMESPACE: Final = "kubeflow-system"
_JOBS_GROUP: Final = "kubeflow.org"

_FILES: Final = ("webhooks.yaml", "training_operator_webhooks.yaml")
_PACKAGED: Final = Path(__file__).parent / "manifests"
_CHECKOUT: Final = Path(__file__).parents[4] / "deploy" / "webhooks"

_RESOURCES: Final = {
    "MutatingWebhookConfiguration": MUTATING_WEBHOOKS,
    "ValidatingWebhookConfiguration": VALIDATING_WEBHOOKS,
}
_OPTIONS: Final = WriteOptions(field_manager="trainmaster-cluster", force=True)

_log = structlog.get_logger(__name__)


class ManagerWebhooks:
    """Where a manager serves its webhooks, and their registration.

    Args:
        directory: Where certificates are kept.
        services: Where the address of the manager's service is registered.
    """

    def __init__(self, directory: Path, services: LocalServices) -> None:
        self.port = free_port()
        self.certificates = directory
        made = ensure_certificates(directory, now=datetime.now(UTC), hosts=(f"{_SERVICE}.{_NAMESPACE}.svc", HOST))
        self._authority = made.authority_pem
        write_private(directory / "tls.crt", made.certificate.read_bytes())
        write_private(directory / "tls.key", made.key.read_bytes())
        services.register(namespace=_NAMESPACE, name=_SERVICE, address=HOST, local_port=self.port)

    async def register(self, api: Api, *, jobs: frozenset[str] | None = None) -> None:
        """Have the API server call the webhooks of the manager from now on.

        Args:
            api: Where they are registered.
            jobs: The kinds of jobs of the Training Operator that are served, in lower case; default: all.
        """
        bundle = base64.b64encode(self._authority).decode("ascii")
        for resource, document in _configurations():
            configuration: JsonObject = copy_tree(document)
            configuration["webhooks"] = [each for each in configuration["webhooks"] if _is_served(each, jobs)]
            if not configuration["webhooks"]:
                continue
            for webhook in configuration["webhooks"]:
                webhook["clientConfig"]["caBundle"] = bundle
            name = configuration["metadata"]["name"]
            await api.patch(resource, None, name, configuration, patch_type=PatchType.APPLY, options=_OPTIONS)
        _log.info("admission webhooks are registered", port=self.port)

    async def are_served(self) -> bool:
        """Tell whether the manager serves them, with the certificate that only it has."""
        context = ssl.create_default_context(cadata=self._authority.decode("ascii"))
        try:
            _, writer = await asyncio.open_connection(HOST, self.port, ssl=context)
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True


async def unregister_webhooks(api: Api) -> None:
    """Remove the registration of an earlier run, whose manager is gone."""
    for resource, configuration in _configurations():
        with contextlib.suppress(StatusError):  # there was none
            await api.delete(resource, None, configuration["metadata"]["name"])


def _is_served(webhook: JsonObject, jobs: frozenset[str] | None) -> bool:
    """Tell whether the manager answers a webhook: about kinds of jobs that are not served it knows nothing."""
    [rule] = webhook["rules"]
    return jobs is None or rule["apiGroups"] != [_JOBS_GROUP] or rule["resources"][0].removesuffix("s") in jobs


@functools.cache
def _configurations() -> list[tuple[GroupResource, JsonObject]]:
    """Read the manifests."""
    return [
        (_RESOURCES[document["kind"]], document)
        for name in _FILES
        for _, document in load_yaml_documents(_file(name).read_bytes())
    ]


def _file(name: str) -> Path:
    path = next((path for path in (_PACKAGED / name, _CHECKOUT / name) if path.is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{name} is neither in {_PACKAGED} nor in {_CHECKOUT}; install trainmaster again")
    return path
