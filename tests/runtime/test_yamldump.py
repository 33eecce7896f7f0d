"""JSON trees as block YAML: what is written is read again, by every reader."""

from __future__ import annotations

import re
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.runtime.jsontext import MAX_DEPTH
from trainmaster.runtime.yamldump import dump_yaml
from trainmaster.runtime.yamltext import load_plain_yaml, load_yaml

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
