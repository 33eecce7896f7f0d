"""A rule that could never allow what it is for is refused where it is written."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import NAMESPACES, SECRETS


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"verbs": ()}, "the verbs of a rule are some of get, list"),
        ({"verbs": ("list", "get")}, "in this order"),
        ({"verbs": ("read",)}, "the verbs of a rule are some of get, list"),
        ({"verbs": ("get", "create"), "names": ("one",)}, "never allows create"),
        ({"resource": NAMESPACES, "namespace": "one"}, "belong to no namespace"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    given = {"resource": SECRETS, "verbs": ("get",), "needed_by": "me", "reason": "to know", **fields}
    with pytest.raises(ValueError, match=message):
        PolicyRule(**given)


def test_a_subresource_is_a_part_of_what_rules_name() -> None:
    rule = PolicyRule(resource=SECRETS, verbs=("get",), needed_by="me", reason="to know", subresource="status")
    assert rule.full_resource == "secrets/status"
