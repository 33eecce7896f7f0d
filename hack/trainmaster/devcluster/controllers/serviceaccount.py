"""What every namespace comes with: the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`.

Both are created again when somebody deletes them; the certificate is corrected when it differs, since pods trust it.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.admission.plugins.serviceaccount import admission_of
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import find
from trainmaster.devcluster.controllers.objects import is_terminating

ROOT_CA = "kube-root-ca.crt"
DEFAULT_ACCOUNT = "default"


class ServiceAccountController(SingleLoopController):
    """Fills namespaces, and gives new pods their account from its construction on.

    `root_ca` is the PEM text by which pods verify the API server.
    """

    def __init__(self, api: Api, *, root_ca: str) -> None:
        self._api = api
        self._root_ca = root_ca
        self._loop = ControlLoop("serviceaccount", self._reconcile, api=api)
        self._loop.watch_keys(NAMESPACES)
        self._loop.watch(SERVICE_ACCOUNTS, lambda event: self._content_changed(event, DEFAULT_ACCOUNT))
        self._loop.watch(CONFIGMAPS, lambda event: self._content_changed(event, ROOT_CA))
        api.add_admission(PODS, admission_of(api, root_ca=ROOT_CA))

    def _content_changed(self, event: Event, name: str) -> None:
        if event.key.name == name:
            self._loop.add(ObjectKey(NAMESPACES, "", event.key.namespace))

    async def _reconcile(self, key: ObjectKey) -> None:
        namespace = find(self._api, key)
        if namespace is None or is_terminating(namespace):
            return
        if find(self._api, ObjectKey(SERVICE_ACCOUNTS, key.name, DEFAULT_ACCOUNT)) is None:
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT_ACCOUNT}}
            options = WriteOptions(field_manager="service-account-controller")
            await self._api.create(SERVICE_ACCOUNTS, account, namespace=key.name, options=options)
        options = WriteOptions(field_manager="root-ca-certificate-publisher")
        known = find(self._api, ObjectKey(CONFIGMAPS, key.name, ROOT_CA))
        data = {"ca.crt": self._root_ca}
        if known is None:
            published = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": ROOT_CA}, "data": data}
            await self._api.create(CONFIGMAPS, published, namespace=key.name, options=options)
        elif known.get("data") != data:
            await self._api.update(CONFIGMAPS, {**known, "data": data}, options=options)
