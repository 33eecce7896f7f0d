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
        ({"type": "integer"}, "a", 'spec.x: Invalid value: "string": spec.x in body must be of type integer: "string"'),
        ({"type": "string"}, 1, 'spec.x: Invalid value: "integer": spec.x in body must be of type string: "integer"'),
        ({"type": "string"}, None, 'spec.x: Invalid value: "null": spec.x in body must be of type string: "null"'),
        ({"type": "boolean"}, [], 'spec.x: Invalid value: "array": spec.x in body must be of type boolean: "array"'),
        ({"type": "integer"}, 1.5, 'spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"'),
        (
            {"x-kubernetes-int-or-string": True},
            True,
            'spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean"',
        ),
        ({"type": "object", "required": ["a"]}, {}, "spec.x.a: Required value"),
        (
            {"type": "string", "enum": ["hard", "soft"]},
            "medium",
            'spec.x: Unsupported value: "medium": supported values: "hard", "soft"',
        ),
        ({"type": "integer", "enum": [1]}, 2, 'spec.x: Unsupported value: 2: supported values: "1"'),
        (
            {"type": "string", "minLength": 1},
            "",
            'spec.x: Invalid value: "": spec.x in body should be at least 1 chars long',
        ),
        ({"type": "string", "maxLength": 2}, "abc", "spec.x: Too long: may not be more than 2 bytes"),
        (
            {"type": "string", "pattern": "^[a-z]+$"},
            "A",
            "spec.x: Invalid value: \"A\": spec.x in body should match '^[a-z]+$'",
        ),
        (
            {"type": "integer", "minimum": 1},
            0,
            "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1",
        ),
        (
            {"type": "integer", "maximum": 3},
            4,
            "spec.x: Invalid value: 4: spec.x in body should be less than or equal to 3",
        ),
        (
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            1,
            "spec.x: Invalid value: 1: spec.x in body should be greater than 1",
        ),
        (
            {"type": "number", "maximum": 0.5, "exclusiveMaximum": True},
            0.5,
            "spec.x: Invalid value: 0.5: spec.x in body should be less than 0.5",
        ),
        (
            {"type": "integer", "multipleOf": 2},
            3,
            "spec.x: Invalid value: 3: spec.x in body should be a multiple of 2",
        ),
        ({"type": "array", "maxItems": 1}, [1, 2], "spec.x: Too many: 2: must have at most 1 item"),
        (
            {"type": "array", "minItems": 1},
            [],
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 items",
        ),
        (
            {"type": "array", "uniqueItems": True},
            [1, 1],
            'spec.x: Invalid value: "": spec.x in body shouldn\'t contain duplicates',
        ),
        ({"type": "object", "maxProperties": 0}, {"a": 1}, "spec.x: Too many: 1: must have at most 0 items"),
        (
            {"type": "object", "minProperties": 1},
            {},
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 properties",
        ),
        (
            {"type": "string", "format": "date-time"},
            "yesterday",
            'spec.x: Invalid value: "yesterday": spec.x in body must be of type date-time: "yesterday"',
        ),
        (
            {"type": "integer", "format": "int32"},
            2**31,
            '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x',
        ),
        ({"type": "array", "x-kubernetes-list-type": "set"}, ["a", "b", "a"], 'spec.x[2]: Duplicate value: "a"'),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
            'spec.x[1]: Duplicate value: {"name":"A"}',
        ),
        ({"not": {"type": "string"}}, "a", '<nil>: Invalid value: "": "spec.x" must not validate the schema (not)'),
    ],
)
def test_one_complaint(node: dict[str, Any], value: Any, complaint: str) -> None:
    assert complaints(node, value) == [complaint]


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ({"type": "string", "nullable": True}, None),
        ({"type": "integer"}, 3.0),
        ({"type": "number"}, 3),
        ({"type": "string", "format": "date-time"}, "2026-01-02T03:04:05Z"),
        ({"type": "string", "format": "date-time"}, "2026-01-02T03:04:05.123456+01:00"),
        ({"type": "integer", "format": "int32"}, -(2**31)),
        ({"type": "integer", "format": "int64"}, 2**63 - 1),
        ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, "50%"),
        ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, 5),
        ({"x-kubernetes-preserve-unknown-fields": True}, {"a": [None, {"b": True}]}),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"unknown": 1}),
        ({"type": "string", "format": "no-such-format"}, "anything"),
        ({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}),
        ({"type": "array"}, ["a", "a"]),
        ({"type": "string", "maxLength": 3}, "äöü"),
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


def test_an_embedded_resource_needs_a_type() -> None:
    node = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    assert complaints(node, {"kind": "Pod"}) == ["spec.x.apiVersion: Required value"]


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
