"""YAML as Kubernetes reads it, and JSON trees as block YAML that every reader reads again."""

import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.runtime.jsontext import MAX_DEPTH
from trainmaster.runtime.yamldump import dump_yaml
from trainmaster.runtime.yamltext import YamlError, load_plain_yaml, load_yaml, load_yaml_documents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-01", "2026-01-01"),
        ("22:30", "22:30"),
        ("yes", True),
        ("Off", False),
        ('"yes"', "yes"),
        ("010", 8),
        ("0o17", 15),
        ("-1_000", -1000),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("~", None),
        ("", None),
        ("100m", "100m"),
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
        (b"a: !!binary aGk=", "no JSON form"),
        (b"a: !!int x", "invalid literal"),
        (b"a: !!bool x", "not a boolean"),
        (b"a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        (b"? [a]\n: b", "a key must be a scalar"),
        (b"a: 1\n---\nb: 2", "another document"),
        (b"a: [1", "at line 2 column 1"),
        (b"a: \xff\xfe", "invalid"),
        (b"&a [*a]", "alias .a refers to nothing before it, or to what it is in at line 1 column 5"),
        (b"a: *b", "alias .b refers to nothing"),
        (b"a: " + b"1" * 400, "too large"),
        (b"[" * 200_000, "nested more than"),
    ],
)
def test_what_is_not_json_in_disguise_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(YamlError, match=reason):
        load_yaml(text)


def bomb(levels: int, line: str) -> bytes:
    """Lines of which each refers to the one before nine times."""
    lines = ["l0: &l0 {k: v}"]
    lines += [f"l{n}: &l{n} {line.format(', '.join([f'*l{n - 1}'] * 9))}" for n in range(1, levels + 1)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("line", ["[{}]", "{{<<: [{}]}}", "{{a: [{}]}}"], ids=["aliases", "merge keys", "both"])
@pytest.mark.parametrize("read", [load_yaml, lambda text: list(load_yaml_documents(text))], ids=["one", "stream"])
def test_an_exploding_document_is_refused_unbuilt(read: Any, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = 0
    construct = yaml.constructor.SafeConstructor.construct_object

    def count(self: Any, node: Any, deep: bool = False) -> Any:
        nonlocal built
        built += 1
        return construct(self, node, deep)

    monkeypatch.setattr(yaml.constructor.SafeConstructor, "construct_object", count)
    with pytest.raises(YamlError, match="more than 200000 values, with its aliases expanded"):
        read(bomb(7, line))
    assert built == 0
    assert read(bomb(2, line))


def test_depth_counts_what_aliases_bring() -> None:
    deep = "a: &a " + "[" * 100 + "]" * 100
    assert load_yaml(deep + "\nb: " + "[" * 40 + "*a" + "]" * 40)
    with pytest.raises(YamlError, match="nested more than 150 levels deep"):
        load_yaml(deep + "\nb: " + "[" * 60 + "*a" + "]" * 60)
    with pytest.raises(YamlError, match="nested more than 150 levels deep"):
        load_yaml(deep + "\nb: &b " + "[" * 40 + "*a" + "]" * 40 + "\nc: " + "[" * 20 + "*b" + "]" * 20)


def test_an_anchor_of_an_earlier_document_means_nothing() -> None:
    with pytest.raises(YamlError, match="refers to nothing before it"):
        list(load_yaml_documents("a: &a 1\n---\nb: *a"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &a 1", "anchors and aliases have no place in what a program writes at line 1 column 4"),
        ("<<: {a: 1}", "merge keys .<<. have no place in what a program writes at line 1 column 1"),
        ("- 1\n" * 60_000, "more than 50000 values"),
        ("[" * 151 + "]" * 151, "nested more than 150 levels deep"),
    ],
)
def test_what_no_program_writes_is_refused_where_only_programs_write(text: str, reason: str) -> None:
    with pytest.raises(YamlError, match=reason):
        load_plain_yaml(text)


def test_a_quoted_merge_key_is_a_key() -> None:
    assert load_plain_yaml('"<<": {a: 1}') == {"<<": {"a": 1}}


def test_an_integer_of_many_digits_is_a_float_as_in_json() -> None:
    assert load_yaml(f"[{2**64 - 1}, {-(2**63)}, {2**64}]") == [2**64 - 1, -(2**63), float(2**64)]


def test_other_users_of_pyyaml_are_not_affected() -> None:
    load_yaml(b"a: 1")
    assert yaml.safe_load("a: 1:30") == {"a": 90}


ODD_TEXTS = [
    *("", " ", "  a", "a ", "yes", "Yes", "ON", "off", "y", "N", "true", "null", "Null", "~", "none", ".inf", ".NaN"),
    *("0", "1", "-1", "+1", "010", "0o7", "0x1F", "0b1", "1e3", "1E3", "1.5", ".5", "5.", "1_000", "1:30", "100m"),
    *("2026-01-01", "2026-01-01T00:00:00Z", "22:30", "=", "<<", "-", "--- a", "...", "?", "? a", ": a", "a: b", "a:"),
    *("a #b", "#a", "- a", "&a", "*a", "!a", "%a", "@a", "`a", "'a'", '"a"', "{a}", "[a]", "a,b", "a, b", "|", ">"),
    *("a\nb", "a\nb\n", "a\n\nb", "\na", "a\n\n", " a\nb", "a\n b", "a \nb", "a\n  \nb", "a\tb", "a\n\tb", "a\r\nb"),
    *("\x00", "\x07", "\x1b", "\x7f", "\x80", "\x85", "\xa0", "\u2028", "\u2029", "\ufeff", "\ufffe", "\uffff", "é"),
    *("日本", "\U0001f600", "a\n\u2028b", "a\n\x85b", "\\n", "a\\", "#!/bin/sh\nset -e\necho 'hi'\n", "x" * 5000),
]
TEXTS = st.sampled_from(ODD_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TEXTS |= st.text("aAyYnN01.:-_eExo#'\"{}[],&*!|>%@`~? \n\t\\", max_size=8)
TREES: st.SearchStrategy[Any] = st.recursive(
    TEXTS
    | st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(TEXTS, below, max_size=4),
    max_leaves=20,
)


def go_reads_as_text(word: str) -> bool:
    """Whether the YAML reader of Kubernetes (YAML 1.1, with some of 1.2) takes a plain word for a string."""
    if word in {"", "~", "=", "<<"} or word.lower() in {"null", "y", "n", "yes", "no", "on", "off", "true", "false"}:
        return False
    return not re.match(r"[-+.]?[0-9]|[-+]?\.(?:inf|nan)", word, re.IGNORECASE)


@given(TREES)
@example(ODD_TEXTS)
@example(dict.fromkeys(ODD_TEXTS, 1))
@example({text: {text: [text, [text], {text: text}]} for text in ODD_TEXTS})
@example([1e16, -1e-7, 1e300, 5e-324, -0.0, 2**63, -(2**63), 2**64 - 1])
def test_every_reader_reads_what_was_written(tree: Any) -> None:
    text = dump_yaml(tree)
    assert load_plain_yaml(text) == tree
    assert yaml.load(text, yaml.CSafeLoader) == tree
    assert yaml.load(text, yaml.SafeLoader) == tree


@given(TEXTS)
def test_a_word_without_quotes_is_a_string_to_the_reader_of_kubernetes(word: str) -> None:
    written = dump_yaml({"a": word}).removeprefix("a: ").removesuffix("\n")
    if written == word:
        assert go_reads_as_text(word)


def test_the_deepest_tree_is_written() -> None:
    tree: Any = 1
    for level in range(MAX_DEPTH):
        tree = {"a": tree} if level % 2 else [tree]
    assert load_yaml(dump_yaml(tree)) == tree


def test_it_looks_as_programs_in_go_write_it() -> None:
    tree = {
        "kind": "TrainingRuntime",
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "spec": {
            "torch": {},
            "list": [{"name": "a", "args": ["-x", "b=c"]}, ["n", []], "8080", None, True, 1.5],
            "script": "#!/bin/sh\necho a\n",
            "image": "docker.io/pytorch:2.7-cuda",
        },
    }
    assert (
        dump_yaml(tree)
        == """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
spec:
  image: docker.io/pytorch:2.7-cuda
  list:
  - args:
    - "-x"
    - b=c
    name: a
  - - "n"
    - []
  - "8080"
  - null
  - true
  - 1.5
  script: |
    #!/bin/sh
    echo a
  torch: {}
"""
    )
