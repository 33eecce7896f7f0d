"""What the text of a rule selects."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.apiserver.schema.cel.parser import find_selections


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("self.a.b.size() > 0", {"self": [("a", "b")]}),
        ("size(self) > oldSelf.c", {"self": [()], "oldSelf": [("c",)]}),
        ("x.self == 'self.a' && \"oldSelf\" != r'\\' // self.b", {}),
        ('\'it\\\'s self\' + self.a + """self.b " self.c"""', {"self": [("a",)]}),
        ("self.?a.orValue(1) == self.`b-c`.d", {"self": [("a",), ("b-c", "d")]}),
        ("self[0].a && self .a", {"self": [(), ("a",)]}),
        ("myself.a || self_a", {}),
    ],
)
def test_fields_that_are_selected(expression: str, selected: dict[str, list[tuple[str, ...]]]) -> None:
    found = find_selections(expression)
    assert {name: [each.names for each in uses] for name, uses in found.items()} == selected


def test_only_plain_selections_can_be_replaced() -> None:
    uses = find_selections("has(self.a) && self.a && self . a && self.?a.x() && self")["self"]
    assert [each.is_plain for each in uses] == [False, True, False, False, False]
