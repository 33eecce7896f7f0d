"""The order of the elements of merged lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.validation import POD_SPEC, containers, finalizers, named, names

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.strategicpatch import strategic_merge_patch

NAMES = st.sampled_from("abcdef")


def test_order_with_additions_and_deletions_as_kubectl_sends_them() -> None:
    patch = {
        "$setElementOrder/containers": named("c", "n", "a"),
        "containers": [{"name": "n", "image": "new"}, {"name": "b", "$patch": "delete"}],
    }
    merged = strategic_merge_patch({"containers": named("a", "b", "c", image="old")}, patch, POD_SPEC)
    assert merged["containers"] == [
        {"name": "c", "image": "old"},
        {"name": "n", "image": "new"},
        {"name": "a", "image": "old"},
    ]


def test_elements_of_others_keep_their_relative_place() -> None:
    """A sidecar that an admission webhook injected must survive an apply that does not know it."""
    patch = {"$setElementOrder/containers": named("b", "a")}
    merged = strategic_merge_patch({"containers": named("sidecar", "a", "b", "last")}, patch, POD_SPEC)
    assert names(merged["containers"]) == ["sidecar", "b", "a", "last"]


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        (["a", "b"], {"$setElementOrder/finalizers": ["c", "a"], "finalizers": ["c"]}, ["c", "a", "b"]),
        (
            ["a", "b", "c"],
            {"$setElementOrder/finalizers": ["b", "a"], "$deleteFromPrimitiveList/finalizers": ["c"]},
            ["b", "a"],
        ),
        (["a", "b", "a"], {"$setElementOrder/finalizers": ["b", "a"]}, ["b", "a"]),
    ],
    ids=["with additions", "with removals", "of those that occur twice"],
)
def test_order_of_scalars(original: list[str], patch: JsonObject, expected: list[str]) -> None:
    assert finalizers(original, patch) == expected


def test_order_of_a_list_that_does_not_exist() -> None:
    assert strategic_merge_patch({}, {"$setElementOrder/containers": named("a")}, POD_SPEC) == {}


@given(st.lists(NAMES, unique=True), st.lists(NAMES, unique=True))
def test_both_orders_are_kept(original: list[str], patch: list[str]) -> None:
    merged = containers(original, named(*patch))
    assert [name for name in merged if name in patch] == patch
    assert [name for name in merged if name not in patch] == [name for name in original if name not in patch]
    assert finalizers(original, {"finalizers": patch}) == merged


@given(st.lists(NAMES, unique=True), st.permutations("abcdef"))
def test_a_complete_element_order_is_the_order(original: list[str], order: list[str]) -> None:
    patch = {"$setElementOrder/containers": named(*order)}
    merged = strategic_merge_patch({"containers": named(*original)}, patch, POD_SPEC)
    assert names(merged["containers"]) == [name for name in order if name in original]


@given(st.lists(NAMES, unique=True), st.lists(NAMES, unique=True))
def test_what_only_the_original_has_goes_before_what_it_preceded_and_behind_anything_new(
    original: list[str], patch: list[str]
) -> None:
    """The rule of the API server: one step after the other, of two heads the patch's comes, unless both are known."""
    theirs, ours, expected = [name for name in original if name not in patch], list(patch), []
    while theirs and ours:
        known = ours[0] in original and original.index(theirs[0]) < original.index(ours[0])
        expected.append(theirs.pop(0) if known else ours.pop(0))
    # A list that is not there at all is the patch's.
    assert containers(original, named(*patch)) == [*expected, *theirs, *ours]
