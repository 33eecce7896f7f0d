"""The texts of errors are those of the API server's libraries."""

from __future__ import annotations

import pytest

from trainmaster.runtime.field_errors import FieldError, aggregate, did_you_mean


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
