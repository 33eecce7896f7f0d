"""Who owns which fields of an object, as far as the managedFields can be read."""

from __future__ import annotations

from trainmaster.controller.reconciling.managedfields import owned_fields_of
from trainmaster.runtime.jsontree import JsonObject


def test_a5_owned_fields_are_those_of_our_applies() -> None:
    fields: list[JsonObject] = [
        {"manager": "trainer", "operation": "Update", "fieldsV1": {"f:wrong": {}}},
        {"manager": "trainer", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:wrong": {}}},
        {"manager": "trainer", "operation": "Apply", "fieldsV1": {"f:right": {}}},
    ]
    assert owned_fields_of({"metadata": {"managedFields": fields}}, "trainer") == {"f:right": {}}
    assert owned_fields_of({"metadata": {}}, "trainer") is None
