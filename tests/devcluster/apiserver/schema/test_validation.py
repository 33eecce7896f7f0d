"""Validating: the words of the Kubernetes API server, recorded from a real one where the golden cases have them."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.schema import Schema, builtin_schema


def complaints(node: dict[str, Any], value: Any, path: str = "spec.x") -> list[str]:
    return [str(error) for error in Schema.compile(node).validate(value, path)]


@pytest.mark.parametrize(
    ("node", "value", "complaint"),
    [
        ({"type": "string"}, None, 'spec.x: Invalid value: "null": spec.x in body must be of type string: "null"'),
        ({"type": "integer"}, 1.5, 'spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"'),
        ({"type": "integer", "enum": [1]}, 2, 'spec.x: Unsupported value: 2: supported values: "1"'),
        ({"type": "string", "maxLength": 2}, "abc", "spec.x: Too long: may not be more than 2 bytes"),
        (
            {"type": "number", "maximum": 0.5, "exclusiveMaximum": True},
            0.5,
            "spec.x: Invalid value: 0.5: spec.x in body should be less than 0.5",
        ),
        (
            {"type": "array", "uniqueItems": True},
            [1, 1],
            'spec.x: Invalid value: "": spec.x in body shouldn\'t contain duplicates',
        ),
        (
            {"type": "object", "minProperties": 1},
            {},
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 properties",
        ),
        (
            {"type": "integer", "format": "int32"},
            2**31,
            '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x',
        ),
        ({"not": {"type": "string"}}, "a", '<nil>: Invalid value: "": "spec.x" must not validate the schema (not)'),
    ],
)
def test_one_complaint(node: dict[str, Any], value: Any, complaint: str) -> None:
    assert complaints(node, value) == [complaint]


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ({"type": "integer", "format": "int32"}, -(2**31)),
        ({"type": "integer", "format": "int64"}, 2**63 - 1),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"unknown": 1}),
        ({"type": "string", "format": "no-such-format"}, "anything"),
        ({"type": "array"}, ["a", "a"]),
    ],
)
def test_no_complaint(node: dict[str, Any], value: Any) -> None:
    assert complaints(node, value) == []


def test_true_is_not_one() -> None:
    assert complaints({"enum": [1]}, True) == ['spec.x: Unsupported value: true: supported values: "1"']


def test_a_wrong_type_is_the_only_complaint_about_a_value() -> None:
    assert len(complaints({"type": "string", "enum": ["a"], "minLength": 1}, 5)) == 1


def test_all_complaints_of_an_object_with_their_paths() -> None:
    item = {"type": "object", "required": ["ready", "active"], "properties": {"name": {"type": "string"}}}
    node = {"type": "object", "properties": {"jobs": {"type": "array", "items": item}}}
    assert complaints(node, {"jobs": [{"name": 1}]}, "status") == [
        "status.jobs[0].ready: Required value",
        "status.jobs[0].active: Required value",
        'status.jobs[0].name: Invalid value: "integer": status.jobs[0].name in body must be of type string: "integer"',
    ]


def test_paths_at_the_root_have_no_leading_dot() -> None:
    node = {"type": "object", "required": ["spec"], "properties": {"a": {"type": "string"}}}
    assert [error.field for error in Schema.compile(node).validate({"a": 1})] == ["spec", "a"]


def test_alternatives_report_at_the_root_and_what_the_nearest_one_misses() -> None:
    node = {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    head = '<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf).'
    assert complaints(node, {}) == [f"{head} Found none valid", "spec.x.a: Required value"]
    assert complaints(node, {"a": 1, "b": 1})[0] == f"{head} Found 2 valid alternatives"
    node = {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert complaints(node, {})[0] == '<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)'
    node = {"type": "object", "allOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert complaints(node, {"a": 1}) == [
        '<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf)',
        "spec.x.b: Required value",
    ]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^a$", "a\n", False),
        (r"^\d+$", "٣", False),  # digits of other scripts are none in RE2
        ("b", "abc", True),
        ("^[[:alpha:]_]+$", "ab_", True),
        ("^[[:alpha:]_]+$", "ab1", False),
        (r"^\Qa.b\E$", "a.b", True),
        (r"^\Qa.b\E$", "axb", False),
        (r"^a\z", "a", True),
        (r"^[$]$", "$", True),
        (r"^[]$]+$", "]$", True),
        (r"^\$$", "$", True),
        (r"^(?<n>x)\x{41}$", "xA", True),
    ],
)
def test_patterns_mean_what_they_mean_in_re2(pattern: str, text: str, matches: bool) -> None:
    assert (complaints({"type": "string", "pattern": pattern}, text) == []) is matches


def test_a_pattern_that_cannot_be_read_matches_nothing_and_says_so() -> None:
    (complaint,) = complaints({"type": "string", "pattern": "("}, "a")
    assert "should match '(, but pattern is invalid:" in complaint


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2026-02-28", "2026-02-30"),
        ("date-time", "2026-01-02t03:04:05z", "2026-01-02T25:04:05Z"),
        ("byte", "YWJj", "not base64!"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.1"),
        ("duration", "1h30m", "soon"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
        ("mac", "00:1b:63:84:45:e6", "00:1b"),
        ("uri", "https://example.com/x", "no uri"),
        ("email", "a@example.com", "a.example.com"),
        ("hostname", "a.example.com", "-a"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    node = {"type": "string", "format": name}
    assert complaints(node, good) == []
    assert complaints(node, bad) == [f'spec.x: Invalid value: "{bad}": spec.x in body must be of type {name}: "{bad}"']


def test_a_pod_of_the_builtin_definitions() -> None:
    image = "spec.containers[1].image"
    pod = {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}, {"image": 1}]}}
    assert [str(error) for error in builtin_schema("io.k8s.api.core.v1.Pod").validate(pod)] == [
        "spec.containers[1].name: Required value",
        f'{image}: Invalid value: "integer": {image} in body must be of type string: "integer"',
    ]
