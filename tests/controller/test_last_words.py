"""What is told of the end of a container's log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.controller.last_words import LENGTH, last_words

TRACEBACK = """\
epoch 3
Traceback (most recent call last):
  File "/w/train.py", line 9, in <module>
    raise ValueError("my loss is NaN")
ValueError: my loss is NaN
"""

TORCHRUN = """\
E1123 08:00:00.000000 12345 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 \
(pid: 12346) of binary: /usr/bin/python
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/opt/conda/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 269, in launch_agent
    raise ChildFailedError(
"""

REPORT = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_08:00:00
  host      : demo-node-0-1.demo
  rank      : 1 (local_rank: 0)
  exitcode  : 1 (pid: 12346)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""

RECORDED = REPORT.replace("To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html", TRACEBACK)

PREFIXED = "".join(f"[rank1]: {line}\n" for line in TRACEBACK.splitlines())
AGAIN = "During handling of the above exception, another exception occurred:\n\n"
LOST = "[rank0]: Traceback (most recent call last):\n[rank0]: torch.distributed.DistBackendError: NCCL error\n"


@pytest.mark.parametrize(
    "message",
    [
        TRACEBACK,
        TRACEBACK[30:],
        PREFIXED,
        TRACEBACK + TORCHRUN + REPORT,
        PREFIXED + TORCHRUN + REPORT,
        TORCHRUN + RECORDED,
        RECORDED[300:],
        PREFIXED + LOST + TORCHRUN + REPORT,
        "\x1b[31mValueError: my loss is NaN\x1b[0m\n",
        f"Traceback (most recent call last):\nKeyError: 'x'\n\n{AGAIN}{TRACEBACK}",
    ],
    ids=["alone", "cut", "ranks", "torchrun", "both", "record", "cut record", "another rank", "colours", "the last"],
)
def test_of_a_traceback_the_exception_is_told(message: str) -> None:
    assert last_words(message) == "ValueError: my loss is NaN"


def test_an_exception_of_several_lines_is_told_with_them() -> None:
    message = "Traceback (most recent call last):\nRuntimeError: CUDA error\nLast error:\n\nout of memory\n" + TORCHRUN
    assert last_words(message) == "RuntimeError: CUDA error | Last error: | out of memory"


def test_where_only_the_table_of_torchrun_is_left_it_says_what_is_in_it() -> None:
    words = last_words(TORCHRUN[100:] + REPORT)
    assert words == (
        "torchrun says that a process of it failed: rank 1, exitcode 1; its own words are in the log before that"
    )


def test_without_an_exception_the_last_lines_are_told_that_fit() -> None:
    message = "\n".join(["x" * LENGTH, "epoch 1", "=====", "", "cannot open /data/train.bin", "giving up"])
    assert last_words(message) == "epoch 1 | cannot open /data/train.bin | giving up"
    before_torchrun = "cannot open /data/train.bin\n" + TORCHRUN + REPORT
    assert last_words(before_torchrun) == "cannot open /data/train.bin"
    assert [last_words(each) for each in ("", "\n\n", "-----\n====\n", "\x1b[0m")] == [""] * 4


@pytest.mark.guarantee("M-11")
def test_credentials_are_left_out_also_where_the_text_is_cut() -> None:
    secret = "s3cr3t-0123456789-" * 20
    assert "s3cr3t" not in last_words(f"RuntimeError: 401 for Authorization: Bearer {secret}")
    assert "s3cr3t" not in last_words(f"OSError: https://me:{secret}@example.com/data")


@given(
    st.lists(
        st.sampled_from([TRACEBACK, TORCHRUN, REPORT, LOST, "[rank1]: ", "\r", "\x00", "\u2028", "\t", "- ", "\n"])
    ).map("".join)
)
def test_it_is_one_line_of_bounded_length_whatever_was_printed(message: str) -> None:
    words = last_words(message)
    assert len(words) <= LENGTH
    assert words.isprintable() or "\t" in words
    assert len(words.splitlines()) <= 1
