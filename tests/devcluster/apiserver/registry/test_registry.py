"""The registry and the list of built-in kinds."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.builtin import builtin_registry
from trainmaster.devcluster.apiserver.resources import EVENTS, EVENTS_V1, PODS, GroupResource


def test_kinds_are_found_by_group_version_and_plural() -> None:
    registry = builtin_registry()
    pods = registry.find("", "v1", "pods")
    assert pods is not None
    assert pods is registry.get(PODS)
    assert pods.api_version == "v1"
    assert registry.find("", "v2", "pods") is None
    assert registry.find("batch", "v1", "pods") is None


def test_unknown_kinds_are_not_found() -> None:
    with pytest.raises(StatusError) as caught:
        builtin_registry().get(GroupResource("x.io", "things"))
    assert caught.value.code == 404


def test_every_change_has_a_new_revision() -> None:
    registry = builtin_registry()
    before = registry.revision
    registry.remove(PODS)
    registry.remove(PODS)
    assert registry.revision == before + 1
    assert not registry.serves(PODS)


def test_all_built_in_kinds_have_a_schema_and_distinct_names() -> None:
    kinds = builtin_registry().kinds()
    assert all(kind.schema is not None and kind.definition for kind in kinds)
    assert len({(kind.group, kind.kind) for kind in kinds}) == len(kinds)


def test_events_share_one_storage() -> None:
    registry = builtin_registry()
    assert registry.get(EVENTS).stored_as == registry.get(EVENTS_V1).stored_as == EVENTS
