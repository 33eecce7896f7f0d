"""Advice on options that `run` does not know: those of torchrun, misspelt ones, and those meant for the program."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from typing import Final

from trainmaster.controller.cli.run.script.program import is_program

_OF_TORCHRUN: Final = {"--nnodes": "--nodes", "--nproc-per-node": "--nproc", "--max-restarts": "--retries"}
_OF_THE_CONTROLLER: Final = frozenset(
    {"--master-addr", "--master-port", "--node-rank", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"}
)
_CLOSE: Final = 0.8
"""So that `--node` is taken for `--nodes`, and `--output-dir` is left to the program."""


def advice(words: Sequence[str], unknown: Sequence[str], options: Sequence[str]) -> str:
    """Say what unknown words of a command line are probably meant to be.

    Args:
        words: All behind `trainmaster run`, including what stands behind `--`.
        unknown: Those in front of `--` that are not understood, in their order.
        options: What may be given.

    Returns:
        What follows "unrecognized arguments: ...", of several lines if the whole line can be corrected.
    """
    meant = {word: near for word in unknown if word.startswith("-") and (near := _meant(word, options))}
    set_by_us = [word for word in unknown if _name(word) in _OF_THE_CONTROLLER]
    told = []
    if meant:
        told.append(f"did you mean {' and '.join(dict.fromkeys(meant.values()))}?")
    if set_by_us:
        told.append(f"{', '.join(set_by_us)}: the controller sets what torchrun is told by that")
    line, moved = _corrected(words, unknown, meant)
    if moved or not (meant or set_by_us):
        told.append("what is meant for a program stands behind --")
    if not any(is_program(word) or word == "-m" for word in line):
        return "; ".join(told)
    return f"{'; '.join(told)}\n  what next: `{shlex.join(['trainmaster', 'run', *line])}`"


def _name(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _meant(word: str, options: Sequence[str]) -> str | None:
    name = _name(word)
    if name in _OF_TORCHRUN:
        return _OF_TORCHRUN[name]
    if name in _OF_THE_CONTROLLER:
        return None
    names = {option.lstrip("-"): option for option in options if option.startswith("--")}
    return next((names[near] for near in difflib.get_close_matches(name.lstrip("-"), names, n=1, cutoff=_CLOSE)), None)


def _corrected(words: Sequence[str], unknown: Sequence[str], meant: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the line as it was probably meant, and what of it was moved behind `--`."""
    end = words.index("--") if "--" in words else len(words)
    waiting = list(unknown)
    kept: list[str] = []
    moved: list[str] = []
    dropped: list[str] = []
    place = kept
    for word in words[:end]:
        is_value = not word.startswith("-") and place is not kept and not is_program(word)
        if waiting and word == waiting[0]:
            waiting.pop(0)
            if word in meant:
                place = kept
                kept.append(meant[word] + word[len(word.partition("=")[0]) :])
                continue
            if word.startswith("-"):
                place = dropped if _name(word) in _OF_THE_CONTROLLER else moved
            elif not is_value and not (kept and kept[-1] in meant.values()):
                place = moved
        elif not is_value:
            place = kept
        place.append(word)
    behind = [*moved, *words[end + 1 :]]
    return [*kept, *(["--", *behind] if behind else [])], moved
