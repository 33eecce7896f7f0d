"""Selectors: the grammar of Kubernetes label and field selectors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.apiserver.selectors import (
    label_selector_from_object,
    parse_field_selector,
    parse_label_selector,
)

LABELS = {"app": "trainer", "tier": "a", "example.com/step": "3", "empty": ""}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("app=a=b", "found '=', expected: ','"),
        ("app in a", "found 'a', expected: '('"),
        ("app in (a", "found '', expected: ',' or ')'"),
        ("=a", "found '=', expected: identifier"),
        ("a,", "expected: identifier after ','"),
        ("a b", "found 'b'"),
        (",a", "found ',', expected: identifier"),
        ("-a=b", "a label key is"),
        ("a/b/c", "a label key is"),
        ("a=-b", "a label value is"),
        ("a" * 64, "a label key is"),
        ("a=" + "b" * 64, "a label value is"),
        ("a>b", "must be an integer"),
        ("Upper.Com/a", "a label key is"),
    ],
)
def test_bad_label_selectors_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"unable to parse|operators") as caught:
        parse_label_selector(text)
    assert message in str(caught.value)


@given(st.text(alphabet="ab=!<>(), in/.-", max_size=20))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """Selectors come from outside: nothing but `ValueError` may come of them."""
    try:
        selector = parse_label_selector(text)
    except ValueError:
        return
    assert selector.matches({"a": "b"}) in {True, False}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "trainer"}}, True),
        ({"matchLabels": {"app": "other"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "trainer"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"app": "trainer"}, "matchExpressions": [{"key": "no", "operator": "Exists"}]}, False),
    ],
)
def test_label_selector_objects(selector: Any, selected: bool) -> None:
    assert label_selector_from_object(selector).matches(LABELS) is selected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ({"key": "a", "operator": "Gt", "values": ["1"]}, "not a valid label selector operator"),
        ({"key": "a", "operator": "In"}, "values set can't be empty"),
        ({"key": "a", "operator": "Exists", "values": ["1"]}, "values set must be empty"),
        ({"operator": "Exists"}, "a label key is"),
    ],
)
def test_bad_label_selector_objects(expression: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        label_selector_from_object({"matchExpressions": [expression]})


@pytest.mark.parametrize("text", ["a", "a=b=c", r"a=\x", "=a", "a=b,c", "a=b\\"])
def test_bad_field_selectors(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid (field )?selector"):
        parse_field_selector(text)


def test_forbidden_names_its_subject_if_there_is_one() -> None:
    assert errors.forbidden("no", resource=PODS, name="p").message == 'pods "p" is forbidden: no'
    assert errors.forbidden("no", resource=PODS).message == "pods is forbidden: no"
    assert "details" not in errors.forbidden("no").status()
