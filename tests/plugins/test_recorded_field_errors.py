"""What the plugins of frameworks complain about, word for word as the original: recorded answers of its webhook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.golden import load_yaml
from support.resolutions import field_errors

from trainmaster.runtime.api import parse_runtime, parse_trainjob
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.jsontree import JsonObject

RECORDED = Path(__file__).parents[1] / "golden" / "admission"
CASES = [
    "062-tj-create-torch-reserved",
    "064-tj-create-torch-injection-missing",
    "065-tj-create-mpi-ok",
    "070-tj-create-jax-names-free",
    "077-tj-create-volcano-empty-queue",
    "071-tj-create-flux-installer",
    "076-tj-create-flux-no-nodes",
    "081-tj-create-tune-ok",
    "085-tj-create-tune-70b-nodes-lora",
    "086-tj-create-tune-qlora-distributed",
    "088-tj-create-tune-qlora-qwen",
    "089-tj-create-tune-immutable-args",
    "090-tj-create-tune-many-errors",
]


@pytest.mark.parametrize("name", CASES)
def test_complaints_are_those_of_the_original(name: str) -> None:
    case: JsonObject = load_yaml((RECORDED / f"{name}.yaml").read_text())
    (runtime,) = case["given"]
    found = field_errors(parse_trainjob(case["request"]["create"]), parse_runtime(runtime))
    _, denied, recorded = case["expect"].get("message", "").partition(" denied the request: ")
    assert case["expect"]["allowed"] is not bool(denied)
    texts = sorted(map(shown, found))  # the recorder sorts the parts, whose order was chance
    assert recorded == (texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else "")


def shown(error: FieldError) -> str:
    """A error as the API server's libraries write it."""
    return f"{error.path}: {error.type} value: {json.dumps(error.value, separators=(',', ':'))}: {error.detail}"
