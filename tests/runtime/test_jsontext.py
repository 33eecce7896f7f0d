from __future__ import annotations

from typing import Any

import pytest

from trainmaster.runtime.canonical import without_blanks
from trainmaster.runtime.jsontext import MAX_DEPTH, JsonError, is_too_deep, load_json
from trainmaster.runtime.jsontree import copy_tree
from trainmaster.runtime.strategicpatch import definition, strategic_merge_patch


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
