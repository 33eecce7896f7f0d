"""Manifests: what files may hold, and where complaints point to."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from trainmaster.controller.cli.manifests import ManifestError, load_manifests
from trainmaster.runtime.jsontree import JsonObject

MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"


def read(text: str) -> list[tuple[str, JsonObject]]:
    with TemporaryDirectory() as directory, chdir(directory):
        Path("f").write_text(text, encoding="utf-8")
        return [(manifest.place, manifest.object) for manifest in load_manifests(["f"])]


def test_every_document_knows_its_line_also_in_json() -> None:
    text = f"# comment\n{MAP % 'a'}---\n---\n\n{MAP % 'b'}"
    assert [(place, obj["metadata"]["name"]) for place, obj in read(text)] == [("f:2", "a"), ("f:8", "b")]
    # Json may be indented with tabs and lists are taken apart.
    item = '{"apiVersion": "v1",\t"kind": "Pod", "metadata": {"name": "%s"}}'
    text = '\n{\n\t"kind": "List",\n\t"items": [' + ",".join(item % name for name in "ab") + "]}"
    assert [(place, obj["metadata"]["name"]) for place, obj in read(text)] == [("f:2", "a"), ("f:2", "b")]


def test_scalars_are_those_of_kubernetes_and_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    ((_, obj),) = read(f"{MAP % 'a'}data: {{day: 2024-01-01, time: 12:30:45, mode: 0644, on: yes}}\n")
    assert obj["data"] == {"day": "2024-01-01", "time": "12:30:45", "mode": 0o644, "true": True}
    # A file that is no text is named.
    path = tmp_path / "model.bin"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match=r"model\.bin:1: the file is not UTF-8"):
        load_manifests([str(path)])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [1\nb: 2\n", r"^f:2: "),
        ("a: 1\nb: 2\na: 3\n", r"^f:3: .*a.* already set"),
        ('{"a": 1,\n "a": 2}', r"^f:2: .*a.* already set"),
        ('{"a": NaN}', r"^f:1: "),
        ("{" + '"a":{' * 5000 + "}" * 5001, r"^f:1: .*nested"),
        ("- 1\n", r"^f:1: expected a Kubernetes object, got list"),
        ("just text\n", r"^f:1: expected a Kubernetes object, got str"),
        ("kind: Pod\n", r"^f:1: apiVersion is missing"),
        ("apiVersion: 1\nkind: Pod\n", r"^f:1: apiVersion is missing or no text"),
        ("apiVersion: v1\nkind: Pod\n", r"^f:1: metadata is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: 5}\n", r"^f:1: metadata.name is no text; quote it"),
        (f"{MAP % 'a'}---\n{MAP % 'b'}data: !!binary aGk=\n", r"^f:8: .*binary has no JSON form"),
    ],
)
def test_complaints_name_the_line(text: str, complaint: str) -> None:
    with pytest.raises(ManifestError, match=complaint) as refusal:
        read(text)
    assert "\n" not in str(refusal.value)
