"""Structural schemas: pruning, defaulting, canonical forms, and validation in the words of the API server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.devcluster.apiserver.schema import Schema, builtin_schema
from trainmaster.devcluster.apiserver.schema.structural_validation import validate_structural
from trainmaster.runtime.jsontree import JsonObject

STRING = {"type": "string"}


def schema(**properties: Any) -> Schema:
    return Schema.compile({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})


def test_preserve_unknown_fields_keeps_them_but_prunes_what_is_described_below() -> None:
    inner = {"type": "object", "properties": {"a": STRING}}
    open_map = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"inner": inner}}
    obj = {"spec": {"open": {"free": {"deep": [1]}, "inner": {"a": "x", "b": 1}}}}
    assert schema(open=open_map).prune(obj) == ["spec.open.inner.b"]
    assert obj == {"spec": {"open": {"free": {"deep": [1]}, "inner": {"a": "x"}}}}


def test_an_embedded_resource_keeps_its_type_and_metadata() -> None:
    template = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
    obj = {"spec": {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "other": 1}}}
    assert schema(template=template).prune(obj) == ["spec.template.other"]
    assert obj["spec"]["template"] == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}


def test_an_unknown_definition_is_named() -> None:
    with pytest.raises(ValueError, match=r"'io\.k8s\.Nothing' is not among the definitions"):
        builtin_schema("io.k8s.Nothing")


def test_recursive_definitions_compile() -> None:
    definitions = {"Tree": {"type": "object", "properties": {"left": {"$ref": "#/definitions/Tree"}}}}
    tree = Schema.compile({"$ref": "Tree"}, definitions)
    assert tree.prune({"left": {"left": {"x": 1}}}) == ["left.left.x"]


def test_a_definition_that_is_only_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="refers to itself"):
        Schema.compile({"$ref": "Loop"}, {"Loop": {"$ref": "Loop"}})


def defaulted(node: dict[str, Any], obj: dict[str, Any]) -> dict[str, Any]:
    Schema.compile(node).default(obj)
    return obj


def with_properties(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_null_is_dropped_unless_nullable_and_then_defaulted() -> None:
    """The Kubernetes documentation's own example of null handling."""
    node = with_properties(
        foo={"type": "string", "default": "default"},
        bar={"type": "string", "nullable": True, "default": "unused"},
        baz={"type": "string"},
    )
    assert defaulted(node, {"foo": None, "bar": None, "baz": None}) == {"foo": "default", "bar": None}


def test_elements_of_lists_and_values_of_maps_are_defaulted() -> None:
    port = with_properties(protocol={"type": "string", "default": "TCP"})
    node = with_properties(
        ports={"type": "array", "items": port}, named={"type": "object", "additionalProperties": port}
    )
    obj = {"ports": [{}, {"protocol": "UDP"}], "named": {"a": {}}}
    expected = {"ports": [{"protocol": "TCP"}, {"protocol": "UDP"}], "named": {"a": {"protocol": "TCP"}}}
    assert defaulted(node, obj) == expected


def test_defaults_are_copied_into_each_object() -> None:
    schema = Schema.compile(with_properties(labels={"type": "object", "default": {"a": "b"}}))
    one: dict[str, Any] = {}
    schema.default(one)
    one["labels"]["a"] = "changed"
    other: dict[str, Any] = {}
    schema.default(other)
    assert other == {"labels": {"a": "b"}}


NODE = with_properties(
    a={"type": "string", "default": "x"},
    b={**with_properties(c={"type": "integer", "default": 1}), "default": {}},
    d={"type": "array", "items": with_properties(e={"type": "string", "default": "y"})},
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.none() | st.text(),
        "b": st.none() | st.fixed_dictionaries({}, optional={"c": st.none() | st.integers()}),
        "d": st.lists(st.fixed_dictionaries({}, optional={"e": st.none() | st.text()})),
    },
)


@given(OBJECTS)
def test_defaulting_twice_changes_nothing_more(obj: dict[str, Any]) -> None:
    once = defaulted(NODE, obj)
    before = repr(once)
    assert repr(defaulted(NODE, once)) == before


def _pod(resources: JsonObject) -> JsonObject:
    return {"spec": {"containers": [{"name": "a", "resources": resources}]}}


def test_a_wrong_quantity_is_named_by_its_path() -> None:
    with pytest.raises(ValueError, match=r"^spec\.containers\[0\]\.resources\.limits\.cpu: "):
        builtin_schema("io.k8s.api.core.v1.Pod").canonicalize(_pod({"limits": {"cpu": "many"}}))


_TEXT: JsonObject = {"type": "string"}


def _problems(field: JsonObject) -> list[str]:
    return [str(each) for each in validate_structural({"type": "object", "properties": {"a": field}}, "schema")]


@pytest.mark.parametrize(
    "field",
    [
        {"x-kubernetes-int-or-string": True},
        {"x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "additionalProperties": {"type": "array", "items": _TEXT}},
        {"type": "array", "x-kubernetes-list-type": "set", "items": _TEXT},
        {"type": "object", "default": {}, "required": ["b"], "properties": {"b": {"type": "string", "default": "x"}}},
    ],
)
def test_a_schema_that_is_structural(field: JsonObject) -> None:
    assert _problems(field) == []


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


def test_true_is_not_one() -> None:
    assert complaints({"enum": [1]}, True) == ['spec.x: Unsupported value: true: supported values: "1"']


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
