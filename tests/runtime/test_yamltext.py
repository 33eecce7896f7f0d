"""YAML as Kubernetes reads it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from trainmaster.runtime.yamltext import YamlError, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("22:30", "22:30"),
        ("1:30.5", "1:30.5"),
        ("yes", True),
        ("y", True),
        ("Off", False),
        ('"yes"', "yes"),
        ("010", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("-1_000", -1000),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("~", None),
        ("", None),
        ("100m", "100m"),
        ("1.5.2", "1.5.2"),
        ("!!str 5", "5"),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    loaded = load_yaml(f"a: {text}".encode())["a"]
    assert (loaded, type(loaded)) == (value, type(value))


def test_keys_become_strings_as_in_json() -> None:
    assert load_yaml(b"1: a\ntrue: b\n~: c") == {"1": "a", "true": "b", "null": "c"}


def test_anchors_and_merges_work() -> None:
    text = b"base: &base {a: 1, b: 2}\nother:\n  <<: *base\n  b: 3\n"
    assert load_yaml(text)["other"] == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"a: 1\nb: 2\na: 3", 'key "a" is already set at line 3 column 1'),
        (b"a: .nan", "not a JSON number"),
        (b"a: .inf", "not a JSON number"),
        (b"a: !!binary aGk=", "no JSON form"),
        (b"a: !!timestamp 2026-01-01", "no JSON form"),
        (b"a: !!int x", "invalid literal"),
        (b"a: !!bool x", "not a boolean"),
        (b"a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        (b"? [a]\n: b", "a key must be a scalar"),
        (b"a: 1\n---\nb: 2", "another document"),
        (b"a: [1", "at line 2 column 1"),
        (b"a: \xff\xfe", "invalid"),
        (b"&a [*a]", "aliases are expanded"),
        (b"[" * 200_000, "nested more than"),
        (b"- " * 20_000, "nested more than"),
    ],
)
def test_what_is_not_json_in_disguise_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(YamlError, match=reason):
        load_yaml(text)


def test_a_document_that_explodes_by_aliases_is_refused() -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)]
    with pytest.raises(YamlError, match="aliases are expanded"):
        load_yaml("\n".join(lines).encode())


def test_other_users_of_pyyaml_are_not_affected() -> None:
    load_yaml(b"a: 1")
    assert yaml.safe_load("a: 1:30") == {"a": 90}
