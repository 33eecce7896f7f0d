"""The bounds of a bundle, and its index."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from trainmaster.controller.cli.support_bundle.bundle import Bundle, end_of_log
from trainmaster.controller.cli.support_bundle.redaction import Redactor

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def index_of(bundle: Bundle) -> dict[str, Any]:
    (path, content), *_ = bundle.written(Redactor())
    assert path == "index.json"
    return dict(orjson.loads(content))


def test_files_come_by_name_after_the_index_and_objects_by_namespace_and_name() -> None:
    bundle = Bundle(NOW)
    for path in ("b.json", "a/z.json", "a.json"):
        bundle.add(path, {})
    assert [path for path, _ in bundle.written(Redactor())] == ["index.json", "a.json", "a/z.json", "b.json"]
    # Objects come by namespace and name and none make no file.
    bundle = Bundle(NOW)
    bundle.add_objects("none.json", [])
    named = [{"kind": "Pod", "metadata": {"namespace": one, "name": name}} for one, name in ("ba", "ab", "aa")]
    bundle.add_objects("pods.json", named)
    _, (path, content) = bundle.written(Redactor())
    items = orjson.loads(content)["items"]
    assert path == "pods.json"
    assert [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in items] == [
        ("a", "a"),
        ("a", "b"),
        ("b", "a"),
    ]


def test_what_does_not_fit_is_left_out_and_told_and_what_comes_after_may_fit() -> None:
    bundle = Bundle(NOW, most_bytes=100)
    bundle.add("first.txt", "x" * 60)
    bundle.add("second.txt", "x" * 60)
    bundle.add("third.txt", "x" * 30, remark="the last 30 bytes of 31")
    index = index_of(bundle)
    assert [each["path"] for each in index["files"]] == ["first.txt", "third.txt"]
    assert index["files"][1]["remark"] == "the last 30 bytes of 31"
    (missing,) = index["missing"]
    assert missing["what"] == "second.txt"
    assert "it has 60 bytes, and the bundle 100 at most" in missing["reason"]


def test_no_name_leads_out_of_the_archive_and_no_reason_has_a_credential() -> None:
    bundle = Bundle(NOW)
    bundle.add("namespaces/../../etc/./passwd//x.json", {})
    assert bundle.paths() == ["namespaces/etc/passwd/x.json"]
    bundle = Bundle(NOW)
    bundle.lacks("metrics", "GET https://me:hunter2@proxy/: 502")
    assert "hunter2" not in orjson.dumps(index_of(bundle)).decode()


def test_the_end_of_a_log_begins_with_a_whole_line() -> None:
    assert end_of_log(b"ken=abc\nnext\n", is_cut=True) == "next\n"
    assert end_of_log(b"first\nnext\n", is_cut=False) == "first\nnext\n"
    assert end_of_log(b"one line without an end", is_cut=True) == ""
    assert end_of_log(b"\xff\n", is_cut=False) == "\ufffd\n"
