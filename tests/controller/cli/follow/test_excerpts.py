"""What is shown of a log that ends with a failure: no frames of libraries, no report of torchrun, nothing twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trainmaster.controller.cli.follow.failures import excerpt, exit_code_of_program, without_report, without_verdict
from trainmaster.controller.cli.follow.job_logs import Tracebacks

TORCH = "/venv/lib/python3.12/site-packages/torch"
BEGINNING = "Traceback (most recent call last):"
DIRECT = "The above exception was the direct cause of the following exception:"
DURING = "During handling of the above exception, another exception occurred:"
VERDICT = (
    "E1123 09:22:45.690000 27321 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) "
    "local_rank: 0 (pid: 27540) of binary: /venv/bin/python"
)


def frame(file: str, line: int, function: str, *source: str) -> list[str]:
    return [f'  File "{file}", line {line}, in {function}', *(f"    {each}" for each in source)]


def user(line: int, function: str = "<module>") -> list[str]:
    return frame("/home/me/train.py", line, function, "step(model)", "^^^^^^^^^^^")


def module_calls(count: int) -> list[str]:
    calls = ("_wrapped_call_impl", "_call_impl")
    return [
        line
        for number in range(count)
        for line in frame(f"{TORCH}/nn/modules/module.py", 1700 + number, calls[number % 2], "return call()", "^^^^")
    ]


def ranked(lines: Sequence[str], prefix: str = "[rank1]: ") -> list[str]:
    return [prefix + line for line in lines]


@pytest.mark.parametrize("prefix", ["", "[rank1]: ", "[default0]:[rank1]: "])
def test_of_an_error_within_ddp_the_code_of_the_user_is_shown(prefix: str) -> None:
    raised = ["RuntimeError: mat1 and mat2 shapes cannot be multiplied", "(8x4 and 5x2)"]
    linear = frame(f"{TORCH}/nn/modules/linear.py", 125, "forward", "return F.linear(input)")
    traceback = [
        *(BEGINNING, *user(60), *user(52, "main"), *module_calls(12), *user(39, "forward"), *module_calls(2)),
        *(*linear, *raised),
    ]
    shown = [
        *(BEGINNING, *user(60), *user(52, "main"), "  [12 frames in torch]", *user(39, "forward")),
        *("  [3 frames in torch]", *raised),
    ]
    log = [*map(str, range(100)), *ranked(traceback, prefix), VERDICT]
    assert excerpt(log) == [*ranked(shown, prefix), VERDICT]


def test_exceptions_are_shown_with_those_that_they_are_chained_to() -> None:
    first = [BEGINNING, *user(7, "load"), *module_calls(1), "KeyError: 'weight'", ""]
    second = [DIRECT, "", BEGINNING, *user(8, "load"), "ValueError: no such model", ""]
    third = [DURING, "", BEGINNING, *user(9), "RuntimeError: nothing to train"]
    before = [BEGINNING, *user(1), "OSError: this one was handled", "going on"]
    chain = [BEGINNING, *user(7, "load"), "  [1 frame in torch]", *first[-2:], *second, *third]
    assert excerpt([*before, *first, *second, *third]) == chain
    assert excerpt(ranked([*before, *first, *second, *third])) == ranked(chain)


def test_what_a_worker_of_a_loader_says_is_shown_with_who_asked_it() -> None:
    """Its traceback is a part of the message, also where that of another process is the cause."""
    outer = [BEGINNING, *user(20), *module_calls(3), "ValueError: Caught ValueError in DataLoader worker process 0."]
    inner = [f"Original {BEGINNING}", *module_calls(2), *user(5, "__getitem__"), "ValueError: no such image", ""]
    folded = [BEGINNING, *user(20), "  [3 frames in torch]", outer[-1]]
    assert excerpt([*outer, *inner]) == [*folded, inner[0], "  [2 frames in torch]", *inner[-5:]]


def test_the_library_of_python_is_folded_as_others_are() -> None:
    python = [
        *frame("<frozen runpy>", 198, "_run_module_as_main"),
        *frame("/usr/lib/python3.12/json/__init__.py", 346, "loads", "return decode(s)"),
        "  [Previous line repeated 996 more times]",
        *frame("/usr/lib/python3/dist-packages/six.py", 1, "call", "f()"),
    ]
    end = [*user(3), "ValueError: no JSON"]
    assert excerpt([BEGINNING, *python, *end]) == [BEGINNING, "  [3 frames in python, six]", *end]


def test_where_no_code_of_the_user_is_known_all_is_shown() -> None:
    # Where all frames are of libraries they are shown. A training may be a module that is installed.
    lines = [BEGINNING, *module_calls(5), "ImportError: no such module"]
    assert excerpt(lines) == lines
    # A syntax error is shown with its place.
    place = [f'  File "{TORCH}/broken.py", line 3', "    def (:", "        ^", "SyntaxError: invalid syntax"]
    assert excerpt(["starting", *place]) == ["starting", *place]
    imported = [BEGINNING, *user(1), *frame(f"{TORCH}/__init__.py", 9, "<module>", "import broken")]
    assert excerpt([*imported, *place]) == [BEGINNING, *user(1), "  [1 frame in torch]", *place]
    # Without a traceback the last lines are shown.
    assert excerpt([]) == []
    lines = [f"epoch {number}" for number in range(100)]
    assert excerpt(lines) == lines[80:]
    # Where its beginning is not kept, nobody knows whose the frames are.
    assert excerpt([*module_calls(30), "ValueError: deep"]) == [*module_calls(30), "ValueError: deep"][-20:]


def test_groups_of_exceptions_stay_as_they_are() -> None:
    group = [
        f"  + Exception Group {BEGINNING}",
        '  |   File "/home/me/train.py", line 3, in <module>',
        "  |     raise ExceptionGroup('two', [one()])",
        "  | ExceptionGroup: two (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        f"    | {BEGINNING}",
        f'    |   File "{TORCH}/nn.py", line 3, in f',
        "    | ValueError: one",
        "    +------------------------------------",
    ]
    assert excerpt(["before", *group]) == group
    assert excerpt(["before", *ranked(group)]) == ranked(group)


def test_a_traceback_may_begin_behind_what_is_drawn_over() -> None:
    bar = f"\r 10%|#   | 1/10\r 20%|##  | 2/10{BEGINNING}"
    assert excerpt(["before", bar, *user(3), *module_calls(2), "ValueError: NaN"]) == [
        bar,
        *user(3),
        "  [2 frames in torch]",
        "ValueError: NaN",
    ]


def test_of_what_is_too_long_both_ends_are_shown() -> None:
    """Long messages, and what a program prints after an error that it has handled."""
    lines = [BEGINNING, *user(3), "RuntimeError: Error(s) in loading state_dict:", *map(str, range(100))]
    shown = excerpt(lines)
    assert shown == [*lines[:19], "[66 lines are left out here]", *lines[-20:]]
    assert len(shown) == 40


PROGRAM = [
    "Traceback (most recent call last):",
    '  File "/home/me/train.py", line 7, in <module>',
    "ValueError: my loss is NaN",
]
AT = "1123 09:22:45.690000 27321 torch/distributed/elastic/multiprocessing/api.py:1002]"
STOPPING = f"W{AT} Sending process 27541 closing signal SIGTERM"
FAILED = f"E{AT} failed (exitcode: 1) local_rank: 0 (pid: 27540) of binary: /venv/bin/python"
REPORT = [
    "Traceback (most recent call last):",
    '  File "/venv/bin/torchrun", line 6, in <module>',
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "train.py FAILED",
]


def test_the_last_lines_are_those_of_the_program() -> None:
    assert without_report([*PROGRAM, STOPPING, FAILED, *REPORT]) == [*PROGRAM, FAILED]


def test_without_a_report_of_torchrun_nothing_is_left_out() -> None:
    """Not even what torchrun prints when somebody else stops it."""
    for lines in ([], PROGRAM, [*PROGRAM, STOPPING], [*PROGRAM, *REPORT]):
        assert without_report(lines) == lines


def test_how_the_program_ended_is_told() -> None:
    killed = FAILED.replace("exitcode: 1)", "exitcode: -9)")
    assert exit_code_of_program([*PROGRAM, FAILED]) == 1
    assert exit_code_of_program([*PROGRAM, killed]) == -9
    for lines in ([], PROGRAM, [*PROGRAM, STOPPING]):
        assert exit_code_of_program(lines) is None
    assert without_verdict([*PROGRAM, killed]) == PROGRAM


BLOCK = ["Traceback (most recent call last):", '  File "train.py", line 11, in <module>', "    barrier()"]


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "[default0]:[rank0]: "])
def test_a_traceback_is_printed_in_full_once(prefix: str) -> None:
    tracebacks = Tracebacks()
    first = [prefix + line for line in ("starting", *BLOCK, "RuntimeError: peer 1234", "bye")]
    assert tracebacks.shorten(first) == first
    again = [prefix + line for line in ("starting", *BLOCK, "RuntimeError: peer 5678", "bye")]
    assert tracebacks.shorten(again) == [
        f"{prefix}starting",
        f"[3 lines of a traceback as before] {prefix}RuntimeError: peer 5678",
        f"{prefix}bye",
    ]


def test_another_traceback_is_printed_in_full_and_what_never_ends_is_released() -> None:
    tracebacks = Tracebacks()
    tracebacks.shorten([*BLOCK, "RuntimeError: a"])
    other = [BLOCK[0], '  File "train.py", line 12, in <module>', "    loss()", "ValueError: NaN"]
    assert tracebacks.shorten(other[:2]) == []
    assert tracebacks.is_holding
    assert tracebacks.shorten(other[2:]) == other
    assert not tracebacks.is_holding
    assert tracebacks.shorten(["before", *BLOCK[:2]]) == ["before"]
    assert tracebacks.release() == BLOCK[:2]
    assert tracebacks.shorten(["    later"]) == ["    later"]
