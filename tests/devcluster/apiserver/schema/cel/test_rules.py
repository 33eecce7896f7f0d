"""What Kubernetes adds to CEL: old values, ratcheting, visibility, names, and the words of a refusal."""

import itertools
import sys
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.schema import cel
from trainmaster.devcluster.apiserver.schema.cel import Rules

FROZEN: dict[str, Any] = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "frozen"}]}
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}
NUMBERS: dict[str, Any] = {"type": "object", "additionalProperties": NUMBER}
TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
Y2024 = "timestamp('2024-01-01T00:00:00Z')"


def ruled(schema: dict[str, Any], rule: str, **more: Any) -> dict[str, Any]:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, **more}]}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def a_list(items: dict[str, Any], kind: str = "atomic", *keys: str) -> dict[str, Any]:
    return {"type": "array", "items": items, "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": list(keys)}


def rules(**properties: Any) -> Rules:
    compiled = Rules(an_object(**properties))
    assert compiled.problems == []
    return compiled


def says(compiled: Rules, new: Any, old: Any = None) -> list[str]:
    return [str(error) for error in compiled.check(new, old).errors]


# Immutability.


@pytest.mark.parametrize("rule", ["self == oldSelf", "self==oldSelf", " self  ==  oldSelf "])
def test_a_changed_value_is_reported(rule: str) -> None:
    compiled = rules(a=ruled(TEXT, rule))
    assert says(compiled, {"a": "2"}, {"a": "1"}) == [f'a: Invalid value: "2": failed rule: {rule.strip()}']
    assert says(compiled, {"a": "1"}, {"a": "1"}) == []


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A platform for which there is no cel-expr-python."""
    monkeypatch.delattr(cel, "env", raising=False)
    monkeypatch.setitem(sys.modules, f"{cel.__name__}.env", None)


@pytest.mark.usefixtures("no_library")
def test_immutability_needs_no_library() -> None:
    compiled = Rules(an_object(a={**TEXT, **FROZEN}, b=ruled(TEXT, "self != ''")))
    ((place, problem),) = compiled.problems
    assert place == ".properties[b].x-kubernetes-validations[0].rule"
    assert "compilation failed: rules in CEL cannot be evaluated: cel-expr-python is not installed" in problem.text
    assert says(compiled, {"a": "2"}, {"a": "1"}) == ['a: Invalid value: "2": frozen']
    assert "rule compile error" in says(compiled, {"b": "x"})[0]


@pytest.mark.usefixtures("no_library")
def test_a_deferred_rule_says_once_that_the_library_is_missing() -> None:
    rule = ruled(TEXT, "self != ''")
    compiled = Rules(an_object(a=rule, b=rule), deferred=True)
    assert compiled.problems == []
    result = compiled.check({"a": "1", "b": "2"})
    assert result.errors == []
    (warning,) = result.warnings
    assert "rules in CEL cannot be evaluated: cel-expr-python is not installed" in warning


def test_objects_are_compared_deeply_and_not_printed() -> None:
    compiled = rules(spec=an_object(a={"type": "object", **FROZEN}))
    assert says(compiled, {"spec": {"a": {"b": {"c": 2}}}}, {"spec": {"a": {"b": {"c": 1}}}}) == [
        "spec.a: Invalid value: frozen"
    ]


@pytest.mark.parametrize(("kind", "changed"), [("set", False), ("map", False), ("atomic", True)])
@pytest.mark.parametrize("rule", ["self == oldSelf", "oldSelf == self && true"])
def test_the_order_of_sets_and_keyed_lists_does_not_matter(rule: str, kind: str, changed: bool) -> None:
    items: list[Any] = ["a", "b"] if kind == "set" else [{"k": "a"}, {"k": "b"}]
    node = a_list(TEXT if kind == "set" else an_object(k=TEXT), kind, *(["k"] if kind == "map" else []))
    compiled = rules(a=ruled(node, rule))
    assert bool(says(compiled, {"a": items[::-1]}, {"a": items})) is changed
    assert says(compiled, {"a": items[:1]}, {"a": items})


# Correlation.


def test_list_items_correlate_by_key() -> None:
    item = an_object(name=TEXT, size=ruled(NUMBER, "self >= oldSelf"))
    old = {"jobs": [{"name": "a", "size": 1}, {"name": "b", "size": 2}]}
    new = {"jobs": [{"name": "new", "size": 0}, {"name": "b", "size": 1}, {"name": "a", "size": 1}]}
    assert says(rules(jobs=a_list(item, "map", "name")), new, old) == [
        "jobs[1].size: Invalid value: 1: failed rule: self >= oldSelf"
    ]


def test_nothing_correlates_below_atomic_lists_and_maps() -> None:
    item = an_object(size={**NUMBER, **FROZEN})
    compiled = Rules(an_object(jobs=a_list(item), box={**item, "x-kubernetes-map-type": "atomic"}))
    assert [(place, problem.text) for place, problem in compiled.problems] == [
        (
            f"{place}.x-kubernetes-validations[0].rule",
            "oldSelf cannot be used on the uncorrelatable portion of the schema",
        )
        for place in (".properties[jobs].items.properties[size]", ".properties[box].properties[size]")
    ]


def test_values_of_maps_correlate_by_name() -> None:
    compiled = rules(sizes={"type": "object", "additionalProperties": {**NUMBER, **FROZEN}})
    assert says(compiled, {"sizes": {"a": 2, "b": 1}}, {"sizes": {"a": 1}}) == ["sizes[a]: Invalid value: 2: frozen"]


def test_an_optional_old_value_may_be_missing() -> None:
    rule = "oldSelf.hasValue() ? self > oldSelf.value() : self == 1"
    compiled = rules(a=ruled(NUMBER, rule, optionalOldSelf=True, message="no"))
    assert says(compiled, {"a": 1}) == []
    assert says(compiled, {"a": 2}) == ["a: Invalid value: 2: no"]
    assert says(compiled, {"a": 3}, {"a": 2}) == []
    assert says(compiled, {"a": 2}, {"a": 3}) == ["a: Invalid value: 2: no"]
    orders = rules(a=ruled(an_object(b=NUMBER), "oldSelf.orValue(self).b <= self.b", optionalOldSelf=True))
    assert says(orders, {"a": {"b": 1}}) == []
    assert says(orders, {"a": {"b": 1}}, {"a": {"b": 2}})


# Ratcheting.


def test_what_was_broken_before_becomes_a_warning() -> None:
    compiled = rules(a=ruled(an_object(b=NUMBER), "self.b < 5", message="too much"), c=TEXT)
    broken = {"a": {"b": 9}, "c": "x"}
    verdict = compiled.check({"a": {"b": 9}, "c": "y"}, broken)
    assert (verdict.errors, verdict.warnings) == ([], ["a: Invalid value: too much"])
    assert says(compiled, {"a": {"b": 8}}, broken) == ["a: Invalid value: too much"]
    assert compiled.check({"a": broken["a"], "c": "y"}, broken).warnings == []


def test_items_without_correlation_are_ratcheted_with_their_list() -> None:
    compiled = rules(a=a_list(ruled(NUMBER, "self < 5")), b=TEXT)
    old = {"a": [9]}
    assert says(compiled, {"a": [9], "b": "x"}, old) == []
    assert len(says(compiled, {"a": [9, 1]}, old)) == 1


def test_a_rule_on_the_change_is_never_ratcheted() -> None:
    compiled = rules(box=an_object(a=ruled(NUMBER, "self > oldSelf")), b=TEXT)
    box = {"a": 1}
    assert len(says(compiled, {"box": box, "b": "x"}, {"box": box})) == 1


def test_branches_of_all_of_have_rules_too() -> None:
    node = {**an_object(b=NUMBER), "allOf": [{"properties": {"b": ruled({}, "self > 1")}}, ruled({}, "self.b > 2")]}
    assert [error.partition(":")[0] for error in says(rules(a=node), {"a": {"b": 1}})] == ["a.b", "a"]


# What a rule sees.


def test_of_the_metadata_only_the_names_are_visible() -> None:
    schema = ruled(an_object(), "self.metadata.name.size() < 3 && !has(self.metadata.generateName)")
    compiled = Rules(schema)
    assert compiled.problems == []
    assert says(compiled, {"metadata": {"name": "ab", "uid": "x"}}) == []
    assert says(compiled, {"metadata": {"name": "abc"}})[0].startswith("<nil>: Invalid value: failed rule")
    ((_, problem),) = Rules(ruled(an_object(), "self.metadata.uid == ''")).problems
    assert problem.text == (
        "compilation failed: ERROR: <input>:1:14: undefined field 'uid'\n | self.metadata.uid == ''\n | .............^"
    )


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("a-b", "a__dash__b"),
        ("a.b", "a__dot__b"),
        ("a/b", "a__slash__b"),
        ("a__b", "a__underscores__b"),
        ("namespace", "__namespace__"),
        ("namespace", "namespace"),
        ("_x", "_x"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_fields_have_other_names_in_rules(field: str, name: str, whole: bool) -> None:
    rule = f"[self].all(x, has(x.{name}) && x.{name} == 1)" if whole else f"has(self.{name}) && self.{name} == 1"
    compiled = rules(a=ruled(an_object(**{field: NUMBER}), rule))
    assert says(compiled, {"a": {field: 1}}) == []
    assert says(compiled, {"a": {field: 2}})


@pytest.mark.parametrize("name", ["a__b", "missing"])
def test_fields_that_do_not_exist_are_found_while_compiling(name: str) -> None:
    schema = an_object(a=ruled(an_object(a__b=TEXT, b=TEXT), f"self.{name} == ''"))
    ((_, problem),) = Rules(schema).problems
    assert f"undefined field '{name}'" in problem.text


def test_null_and_unknown_fields_are_absent() -> None:
    node = an_object(b={**TEXT, "nullable": True}) | {"x-kubernetes-preserve-unknown-fields": True}
    compiled = rules(a=ruled(node, "[self].all(x, !has(x.b) && !has(x.c))"))
    assert says(compiled, {"a": {"b": None, "c": 2**80}}) == []
    assert says(compiled, {"a": {"b": "x"}})


def test_fields_with_similar_names_are_told_apart() -> None:
    node = an_object(a_b=NUMBER, a=an_object(b=NUMBER), self_c=NUMBER, c=NUMBER)
    rule = "self.a_b == 1 && self.a.b == 2 && self.c == 3 && self . c == 3 && [4].all(self_c, self_c > self.c)"
    compiled = rules(a=ruled(node, rule))
    assert says(compiled, {"a": {"a_b": 1, "a": {"b": 2}, "c": 3}}) == []
    assert says(compiled, {"a": {"a_b": 2, "a": {"b": 1}, "c": 3}})


def test_a_macro_may_call_its_variable_self() -> None:
    compiled = rules(a=ruled(a_list(an_object(b=NUMBER)), "self.all(self, self.b == 1)"))
    assert says(compiled, {"a": [{"b": 1}]}) == []
    assert says(compiled, {"a": [{"b": 1}, {"b": 2}]})


def test_what_the_schema_forbids_but_was_there_before_breaks_no_rule_check() -> None:
    compiled = rules(a=ruled(TIME, f"self > {Y2024}"), b=ruled(a_list(TIME), f"self[0] > {Y2024}"))
    errors = says(compiled, {"a": "yesterday", "b": "never"})
    assert [error.partition(" evaluating rule")[1] for error in errors] == [" evaluating rule"] * 2


def test_a_rule_need_not_look_at_the_value() -> None:
    compiled = rules(a=ruled(a_list(TIME), "1 > 2", message="never"))
    assert says(compiled, {"a": ["2024-01-01T00:00:00Z"]}) == ["a: Invalid value: never"]


def test_null_has_no_rules() -> None:
    assert says(rules(a=ruled({**NUMBER, "nullable": True}, "self > 1")), {"a": None}) == []


@pytest.mark.parametrize(
    ("schema", "rule", "good", "bad"),
    [
        ({"x-kubernetes-int-or-string": True}, "type(self) == int ? self < 5 : self == '10%'", [4, "10%"], [5, "5%"]),
        ({"type": "number"}, "self < 1.5", [1, 1.25, 0], [2, 1.5]),
        (TIME, f"self > {Y2024}", ["2024-01-01T00:00:01.123456789Z"], ["2023-12-31T23:00:00-00:30"]),
        (TEXT | {"format": "date"}, f"self > {Y2024}", ["2024-01-02"], ["2023-12-31"]),
        (TEXT | {"format": "duration"}, "self > duration('90s')", ["2m", "1h30m"], ["1m30s"]),
        (TEXT | {"format": "byte"}, "self == b'ab'", ["YWI="], ["YQ=="]),
        (TEXT, "size(self) == 2", ["éé"], ["é"]),
        (TEXT, "quantity(self).isGreaterThan(quantity('1Gi'))", ["1025Mi", "2G"], ["1Gi", "1024Mi"]),
        (an_object(t=TIME), f"self.t > {Y2024}", [{"t": "2025-01-01T00:00:00Z"}], [{"t": "2023-01-01T00:00:00Z"}]),
        (NUMBERS, "self.all(k, k.startsWith('a') && self[k] > 0)", [{"a1": 1}, {}], [{"b": 1}, {"a": 0}]),
        (a_list(NUMBER), "self.isSorted() && self.sum() < 10", [[1, 2], []], [[2, 1], [5, 6]]),
    ],
)  # fmt: skip
def test_values_by_their_schema(schema: dict[str, Any], rule: str, good: Any, bad: Any) -> None:
    compiled = rules(a=ruled(schema, rule))
    for value in good:
        assert says(compiled, {"a": value}) == []
    for value in bad:
        (error,) = says(compiled, {"a": value})
        assert error.endswith(f"failed rule: {rule}")


# Words.


def test_reason_and_path_of_the_rule_are_used() -> None:
    box = an_object(b=an_object(**{"c-d": {"type": "object", "additionalProperties": TEXT}}))
    compiled = rules(a=ruled(box, "false", message=" no ", reason="FieldValueForbidden", fieldPath=".b['c-d']['e.f']"))
    assert says(compiled, {"a": {}}) == ["a.b.c-d[e.f]: Forbidden: no"]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("FieldValueInvalid", 'a: Invalid value: "x": no'),
        ("FieldValueForbidden", "a: Forbidden: no"),
        ("FieldValueRequired", "a: Required value: no"),
        ("FieldValueDuplicate", 'a: Duplicate value: "x"'),
    ],
)
def test_reasons(reason: str, text: str) -> None:
    assert says(rules(a=ruled(TEXT, "false", message="no", reason=reason)), {"a": "x"}) == [text]


@pytest.mark.parametrize(
    ("expression", "text"),
    [("'is ' + self", "is x"), ("self + '\\n'", "x"), ("'a\\n' + self", "fixed"), ("self.substring(9)", "fixed")],
)
def test_a_message_may_be_computed(expression: str, text: str) -> None:
    compiled = rules(a=ruled(TEXT, "false", message="fixed", messageExpression=expression))
    assert says(compiled, {"a": "x"}) == [f'a: Invalid value: "x": {text}']


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("self.m['x'] == 'y'", "no such key: x evaluating rule: r"),
        ("self.t.size() > 0", "no such key: t evaluating rule: r"),
        ("1 / self.n > 0", "division by zero evaluating rule: r"),
        ("self.n + 9223372036854775807 > 0 && self.n + 1 > 0 && self.l[3] == 1", "index out of bounds"),
        ("self.n - 1 - 9223372036854775807 - 1 > 0", "integer overflow evaluating rule: r"),
        ("self.any > 1", "call arguments did not match a supported operator, function or macro signature for rule: r"),
    ],
)
def test_a_rule_that_cannot_be_evaluated_refuses(rule: str, text: str) -> None:
    node = an_object(
        m={"type": "object", "additionalProperties": TEXT},
        n=NUMBER,
        t=TEXT,
        l=a_list(NUMBER),
        any={"x-kubernetes-int-or-string": True},
    )
    compiled = rules(a=ruled(node, rule, message="r"))
    (error,) = says(compiled, {"a": {"m": {}, "n": 0, "l": [], "any": "x"}})
    assert error.startswith("a: Invalid value: ")
    assert text in error


# Definitions.


@pytest.mark.parametrize(
    ("entry", "field", "text"),
    [
        ({"rule": " "}, "rule", "rule is not specified"),
        ({"rule": "self +"}, "rule", "compilation failed: ERROR: <input>:1:"),
        ({"rule": "nothing(self)"}, "rule", "undeclared reference to 'nothing'"),
        ({"rule": "self.nothing()"}, "rule", "undeclared reference to 'nothing'"),
        ({"rule": "true", "message": " "}, "message", "message must be non-empty if specified"),
        ({"rule": "true", "message": "a\nb"}, "message", "message must not contain line breaks"),
        ({"rule": "true\n|| false"}, "message", "message must be specified if rule contains line breaks"),
        ({"rule": "true", "reason": "Because"}, "reason", "supported values"),
        ({"rule": "true", "fieldPath": ".b"}, "fieldPath", "does not refer to a valid field"),
        ({"rule": "true", "fieldPath": "b"}, "fieldPath", "fieldPath must be a valid path"),
        ({"rule": "true", "messageExpression": "self +"}, "messageExpression", "compilation failed"),
        ({"rule": "true", "optionalOldSelf": True}, "optionalOldSelf", "oldSelf is not used"),
    ],
)
def test_entries_that_make_no_sense(entry: dict[str, Any], field: str, text: str) -> None:
    ((place, problem),) = Rules(an_object(a={**TEXT, "x-kubernetes-validations": [entry]})).problems
    assert place == f".properties[a].x-kubernetes-validations[0].{field}"
    assert text in problem.text


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("self.n", "cel expression must evaluate to a bool"),
        ("self.n == 'x'", "<input>:1:8: found no matching overload for '_==_' applied to '(int, string)'\n | self"),
        ("self.n.x == 1", "type 'int' does not support field selection"),
    ],
)  # fmt: skip
def test_types_are_checked_while_compiling(rule: str, text: str) -> None:
    ((_, problem),) = Rules(an_object(a=ruled(an_object(n=NUMBER), rule))).problems
    assert text in problem.text


def test_a_message_shows_the_rule_as_it_was_written() -> None:
    schema = an_object(
        a=ruled(an_object(n=NUMBER), "oldSelf.hasValue()\n&& self.n == ''", optionalOldSelf=True, message="m")
    )
    ((_, problem),) = Rules(schema).problems
    assert "<input>:2:11:" in problem.text
    assert "\n | && self.n == ''\n" in problem.text


# Limits.


def test_rules_get_a_second() -> None:
    times = itertools.count(step=0.4)
    entries = [{"rule": "self != 'x'", "message": str(number)} for number in range(9)]
    compiled = rules(a={**TEXT, "x-kubernetes-validations": entries})
    errors = compiled.check({"a": "x"}, clock=lambda: next(times)).errors
    assert [error.detail for error in errors[:2]] == ["0", "1"]
    assert [error.detail for error in errors[2:]] == [
        "validation failed due to running out of cost budget, no further validation rules will be run"
    ]


def test_loops_in_loops_end() -> None:
    compiled = rules(a=ruled(a_list(NUMBER), "self.all(x, self.all(y, x + y >= 0))", message="m"))
    assert says(compiled, {"a": [1] * 20}) == []
    (error,) = says(compiled, {"a": [1] * 300})
    assert "no further validation rules will be run due to call cost exceeds limit for rule: m" in error
