"""What torchrun adds to the log of a program that failed."""

from __future__ import annotations

from trainmaster.controller.cli.follow.torchrun_report import exit_code_of_program, without_report, without_verdict

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
