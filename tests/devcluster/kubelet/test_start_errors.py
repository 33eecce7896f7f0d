"""What is said of a container that could not be started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainmaster.devcluster.kubelet.start_errors import start_error

FAILED = "unable to start container process: "
HERE = "containers run the programs of this machine"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            "torchrun",
            f"torchrun is not installed in the environment of the cluster: {sys.executable} -m pip install torch",
        ),
        ("pyhton", f"did you mean python? Images are not read here, {HERE}"),
        ("nonesuch", f"images are not read here, {HERE}"),
        ("python train.py", 'a command is a list of words: write ["python", "train.py"]'),
        ("torchrun --nnodes 2 train.py", 'a command is a list of words: write ["torchrun", "--nnodes", "2", ...]'),
    ],
)
def test_a_program_that_is_not_on_the_search_path(tmp_path: Path, program: str, expected: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    path = f"{tmp_path}/bin:/nowhere:"
    problem = f'exec: "{program}": executable file not found in $PATH'
    shown = start_error(problem, argv=[program, "--verbose"], search_path=path, own=tmp_path)
    assert shown == f"{FAILED}{problem}: {expected} (PATH is /nowhere:)"


def test_a_path_of_an_image_that_this_machine_does_not_have() -> None:
    problem = 'exec: "/opt/conda/bin/python": no such file or directory'
    shown = start_error(problem, argv=["/opt/conda/bin/python"], search_path="/bin", own=Path("/var"))
    assert shown == f"{FAILED}{problem}: images are not read here, {HERE}"


def test_what_has_nothing_to_do_with_programs_stays() -> None:
    shown = start_error("cannot mount at /proc/x", argv=["a"], search_path="", own=Path("/var"))
    assert shown == f"{FAILED}cannot mount at /proc/x"
