"""ServiceAccounts."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy


class ServiceAccountStrategy(Strategy):
    """ServiceAccounts: plain, but for the answer to their deletion."""

    return_deleted_object = True


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "ServiceAccount",
        "serviceaccounts",
        strategy=ServiceAccountStrategy(),
        short_names=("sa",),
        subresources=("token",),
    )
