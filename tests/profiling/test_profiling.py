"""A manager can be profiled, and what it takes is told by cause. Nothing here looks at how long anything takes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.commands import run_module

from profiling.causes import CAUSES, IMPORTS, OTHER, cause_of, file_of
from profiling.profile import PhaseProfile
from profiling.report import by_cause, by_function, unexplained
from profiling.results import Results, read, write
from profiling.sampler import Call, Sample, collected
from profiling.sampler import read as read_samples

_ROOT = Path(__file__).resolve().parents[2]
_ROUNDS = 20
"""Seconds of CPU after which a sample would have come, many times over."""


def _sampled(tmp_path: Path, work: str) -> list[Sample]:
    """Profile some code in a process of its own: signals are for a main thread."""
    file = tmp_path / "profile.json"
    program = f"import sys\nsys.path.insert(0, {str(_ROOT / 'hack')!r})\n{work}"
    subprocess.run([sys.executable, "-c", program, str(file)], check=True, timeout=100)
    return [*read_samples(file)]


def _until(condition: str, body: str) -> str:
    """Return code that goes on until its samples tell of something, so that no machine is too slow or too fast."""
    return (
        "import gc, time, pathlib\n"
        "from profiling import sampler\n"
        "seen = set()\n"
        "take = sampler.Sampler.sample\n"
        "def sample(self, number, frame):\n"
        "    seen.add(frame.f_code.co_name)\n"
        "    take(self, number, frame)\n"
        "sampler.Sampler.sample = sample\n"
        f"def busy():\n    {body}\n"
        f"with sampler.sampled(pathlib.Path(sys.argv[1])):\n"
        f"    end = time.process_time() + {_ROUNDS}\n"
        f"    while not ({condition}) and time.process_time() < end:\n"
        "        busy()\n"
    )


def test_a_sample_has_its_stack_from_the_innermost_call_on_and_its_moment(tmp_path: Path) -> None:
    before = time.monotonic()
    samples = _sampled(tmp_path, _until("'busy' in seen", "sum(range(10_000))"))
    (busy, *_) = (each for each in samples if each.calls[0].function == "busy")
    assert [call.function for call in busy.calls] == ["busy", "<module>"]
    assert before - 1 < busy.moment <= time.monotonic()
    assert busy.times >= 1


def test_garbage_collections_are_told_apart(tmp_path: Path) -> None:
    samples = _sampled(tmp_path, _until("'collected' in seen", "gc.collect()"))
    found = [each for each in samples if each.calls[0].function == collected.__name__]
    assert found
    assert {cause_of(each.calls) for each in found} == {"garbage collection"}


def _stack(*calls: str) -> list[Call]:
    return [Call(*each.split(":")) for each in calls]


_SITE = "/home/me/.venv/lib/python3.11/site-packages"
_STDLIB = "/usr/lib/python3.11"
_OURS = "/home/me/controller/trainmaster/controller"
_KUBE = f"{_OURS}/kube"
_LOOP = (f"{_STDLIB}/asyncio/events.py:Handle._run", f"{_STDLIB}/asyncio/runners.py:run")


@pytest.mark.parametrize(
    ("calls", "cause"),
    [
        ((f"{_SITE}/aiohttp/client.py:_request", f"{_KUBE}/rest/client.py:KubeClient.apply"), "HTTP client"),
        ((f"{_STDLIB}/ssl.py:SSLObject.read", f"{_STDLIB}/asyncio/sslproto.py:SSLProtocol._do_read"), "TLS"),
        ((f"{_STDLIB}/contextlib.py:contextmanager", f"{_SITE}/structlog/contextvars.py:f"), "logging"),
        (("/home/me/hack/profiling/manager.py:loads", f"{_KUBE}/rest/watch.py:decode_event"), "JSON"),
        ((f"{_KUBE}/rest/watch.py:decode_event", f"{_KUBE}/cache/reflector.py:run"), "cache and informers"),
        (("/home/me/plugins/trainmaster/plugins/jobset.py:JobSet.build", f"{_OURS}/x.py:f"), "resolve"),
        (("/home/me/plugins/trainmaster/plugins/jobset.py:JobSet.status", f"{_OURS}/x.py:f"), "status"),
        (_LOOP, "asyncio"),
        ((f"{_STDLIB}/enum.py:Enum.__new__", "<frozen importlib._bootstrap>:_load", *_LOOP), IMPORTS),
        ((f"{_OURS}/new_room.py:f", *_LOOP), OTHER),
    ],
)  # fmt: skip
def test_the_innermost_function_that_is_known_decides(calls: tuple[str, ...], cause: str) -> None:
    assert cause_of(_stack(*calls, *_LOOP)) == cause


def test_functions_are_called_the_same_wherever_they_are_installed() -> None:
    assert file_of(f"{_SITE}/aiohttp/client.py") == "aiohttp/client.py"
    assert file_of("/usr/lib/python3.13/asyncio/events.py") == "asyncio/events.py"
    assert file_of("/somewhere/runtime/trainmaster/runtime/info.py") == "trainmaster/runtime/info.py"


def test_the_table_of_causes_knows_files_that_there_are() -> None:
    rooms = ("controller", "runtime", "plugins", "metrics")
    ours = [path.partition(":")[0] for paths in CAUSES.values() for path in paths if path.startswith("trainmaster/")]
    assert ours
    gone = [path for path in ours if not any([*(_ROOT / room).glob(f"{path}*")] for room in rooms)]
    assert not gone, "hack/profiling/causes.py has paths that lead nowhere"


def _profile(**counts: int) -> PhaseProfile:
    stacks = {
        "tls": _stack(f"{_STDLIB}/ssl.py:SSLObject.read", *_LOOP),
        "http": _stack(f"{_SITE}/aiohttp/client.py:send", *_LOOP),
        "imports": _stack("<frozen importlib._bootstrap>:_load"),
        "unknown": _stack(f"{_OURS}/new_room.py:f", *_LOOP),
    }
    return PhaseProfile.of([Sample(1.0, times, stacks[name]) for name, times in counts.items()], cpu=2.0)


def test_shares_leave_out_imports() -> None:
    profile = _profile(tls=3, http=1, imports=96)
    assert profile.samples == 4
    assert profile.causes == {"TLS": 0.75, "HTTP client": 0.25}
    by_name = {each.name: each for each in profile.functions}
    assert (by_name["ssl.py:SSLObject.read"].own, by_name["ssl.py:SSLObject.read"].inclusive) == (0.75, 0.75)
    assert (by_name["asyncio/events.py:Handle._run"].own, by_name["asyncio/events.py:Handle._run"].inclusive) == (0, 1)


def test_commits_stand_beside_each_other_in_milliseconds() -> None:
    profiles = {"before": {"create": _profile(tls=3, http=1)}, "now": {"create": _profile(tls=1, http=3)}}
    lines = [*by_cause(profiles)]
    assert lines[0] == "| CPU for a job, ms | creation, before | creation, now |"
    assert "| TLS | 1.50 (75 %) | 0.50 (25 %) |" in lines
    assert lines[-1] == "| all | 2.00 | 2.00 |"
    assert not unexplained(profiles)
    functions = [*by_function(profiles["now"]["create"], 1)]
    assert functions[1].split() == ["75.0%", "75.0%", "aiohttp/client.py:send"]
    assert functions[3].split() == ["75.0%", "75.0%", "aiohttp/client.py:send"], "what runs all is no news"


def test_too_much_without_a_cause_is_told() -> None:
    (gap,) = unexplained({"now": {"create": _profile(tls=9, unknown=1), "live": _profile(tls=99, unknown=1)}})
    assert gap.startswith("10.0 % of creation, now, has no cause")


def test_profiles_are_kept(tmp_path: Path) -> None:
    results = Results({"python": "3.11"}, 10, {"now": {"create": _profile(tls=3, http=1)}})
    write(tmp_path / "results.json", results)
    assert read(tmp_path / "results.json") == results
    (tmp_path / "odd.json").write_text("[]")
    with pytest.raises(ValueError, match="not written by `make profile`"):
        read(tmp_path / "odd.json")


async def test_a_manager_is_profiled_in_every_phase(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    run = await run_module("profiling", "--jobs", "10", "--functions", "2", "--json", str(file))
    # So few jobs have few samples: one of a function that is unknown may be more than is allowed.
    assert run.code in {0, 1}, run.err
    assert set(read(file).profiles["now"]) == {"create", "live", "settled", "restart"}
    assert "creation, now" in run.out
    assert json.loads(file.read_text())["jobs"] == 10
