"""The texts of errors, rules of names, and JSON as text."""

from collections.abc import Callable
from typing import Any

import pytest

from trainmaster.runtime import names
from trainmaster.runtime.canonical import without_blanks
from trainmaster.runtime.field_errors import FieldError, aggregate, did_you_mean
from trainmaster.runtime.jsontext import MAX_DEPTH, JsonError, is_too_deep, load_json
from trainmaster.runtime.jsontree import copy_tree
from trainmaster.runtime.strategicpatch import definition, strategic_merge_patch


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FieldError("spec.a", "must be 1", value=2), "spec.a: Invalid value: 2: must be 1"),
        (FieldError("spec.a", "no", value='<"x">'), 'spec.a: Invalid value: "<\\"x\\">": no'),
        (FieldError("spec.a", "no"), "spec.a: Invalid value: null: no"),
        (
            FieldError("spec.a", "no", value={"kind": "K", "other": {"b": 1, "a": "<&>"}, "name": "n"}),
            'spec.a: Invalid value: {"name":"n","kind":"K","other":{"a":"\\u003c\\u0026\\u003e","b":1}}: no',
        ),
    ],
)
def test_values_are_shown_as_go_writes_them(error: FieldError, text: str) -> None:
    assert str(error) == text
    assert error.body == text.removeprefix(f"{error.path}: ")


def test_several_errors_are_a_list_without_repetitions() -> None:
    one, two = FieldError("a", "x", value=1), FieldError("b", "y", value=1)
    assert aggregate([one]) == "a: Invalid value: 1: x"
    assert aggregate([one, two, one]) == "[a: Invalid value: 1: x, b: Invalid value: 1: y]"
    assert aggregate([]) == ""


def test_messages_are_bounded() -> None:
    many = [FieldError(f"spec.f{number}", "x" * 100, value="v" * 10_000) for number in range(200)]
    text = aggregate(many)
    assert len(text) < 33_000
    assert text.endswith("...")
    assert aggregate([FieldError(f"f{number}", "x") for number in range(105)]).endswith(", and 5 more]")


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("nde", ["node", "launcher"], '(did you mean "node"?)'),
        ("trainer", ["node"], "(there are: node)"),
        ("x", [], "(there are none)"),
        (
            "x",
            [f"job{number}" for number in range(12)],
            "(there are: " + ", ".join(f"job{n}" for n in range(10)) + ", ...)",
        ),
    ],
)
def test_suggestions(name: str, known: list[str], text: str) -> None:
    assert did_you_mean(name, known) == text


RULES: dict[Callable[[str], list[Any]], tuple[list[str], list[str]]] = {
    names.dns_subdomain: (
        ["a", "a-b", "a.b-c", "1a", "x" * 253],
        ["", "A", "a_b", "-a", "a.", "a..b", "a\n", "é", "x" * 254],
    ),
    names.dns_label_1035: (["a1"], ["1a", "a.b", "x" * 64]),
    names.qualified_name: (
        ["app", "example.com/App_1.x"],
        ["", "/x", "a/b/c", "Example.com/x", "example.com/", "x" * 64, "-x"],
    ),
    names.label_value: (["", "a_B.1"], ["a b", "a-", "x" * 64]),
    names.path_segment: (["system:node"], ["a/b", "..", "a%b"]),
}
"""By rule: names that it lets pass, and names that it does not."""


@pytest.mark.parametrize(
    ("rule", "name", "is_good"),
    [(rule, name, name in good) for rule, (good, bad) in RULES.items() for name in (*good, *bad)],
)
def test_a_rule_lets_good_names_pass_and_no_others(rule: Callable[[str], list[Any]], name: str, is_good: bool) -> None:
    assert (rule(name) == []) is is_good


def nested(levels: int) -> bytes:
    """Objects and lists in turn, and something beside each of them."""
    opening, closing = b"", b""
    for level in range(levels):
        opening += b'{"b":[],"a":' if level % 2 else b"[1,"
        closing = (b"}" if level % 2 else b"]") + closing
    return opening + b"0" + closing


@pytest.mark.parametrize("read", [load_json, lambda text: load_json(text.decode())])
def test_json_is_read_up_to_its_depth_and_no_deeper(read: Any) -> None:
    assert read(nested(MAX_DEPTH - 1))
    assert not is_too_deep(read(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH))
    for levels in (MAX_DEPTH + 1, 1000, 1025, 100_000):
        with pytest.raises(JsonError, match=f"it is nested more than {MAX_DEPTH} levels deep"):
            read(b"[" * levels + b"]" * levels)


def test_brackets_in_strings_and_siblings_are_no_depth() -> None:
    assert load_json(b'{"a":"' + b"[{" * 5000 + b'"}')
    assert load_json(b"[" + b"[[]]," * 5000 + b"[]]")


@pytest.mark.parametrize(
    ("text", "where"),
    [(b"", "line 1 column 1"), (b'{"a":1,\n"b":}', "line 2 column 5"), (b"[1e999]", "line 1"), (b'["\xff"]', "UTF-8")],
)
def test_what_is_no_json_is_told_with_its_place(text: bytes, where: str) -> None:
    with pytest.raises(JsonError, match=where):
        load_json(text)


def test_whoever_walks_a_tree_gets_by_at_the_greatest_depth() -> None:
    """In the middle of a call stack that is as deep as those of servers and tests."""
    tree = {"metadata": {"odd": load_json(b'{"a":' * (MAX_DEPTH - 2) + b"1" + b"}" * (MAX_DEPTH - 2))}}
    assert copy_tree(tree) == tree
    assert without_blanks(tree)
    assert strategic_merge_patch(tree, {"metadata": tree["metadata"]}, definition("io.k8s.api.core.v1.PodTemplateSpec"))
