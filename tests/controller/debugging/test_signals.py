"""The stack dump on SIGUSR1, of a process that goes on."""

import asyncio
import signal
import sys

import pytest

pytestmark = pytest.mark.nightly

PROGRAM = """
import asyncio, sys, threading, time
from trainmaster.controller.debugging.stacks import stack_dumps_on_signal

async def wait_for_ever():
    await asyncio.Event().wait()

def stuck():
    print("ready", flush=True)
    while True:
        {work}

async def main():
    waiting = asyncio.create_task(wait_for_ever(), name="the patient one")
    await asyncio.sleep(0)
    threading.Thread(target=lambda: time.sleep(60), daemon=True).start()
    with stack_dumps_on_signal():
        {main}

asyncio.run(main())
"""


@pytest.mark.guarantee("M-10")
@pytest.mark.parametrize(
    ("main", "work"),
    [
        ("print('ready', flush=True); await wait_for_ever()", "pass"),
        ("stuck()", "sum(range(100))"),  # the loop does not turn
    ],
    ids=["idle", "stuck"],
)
async def test_a_signal_dumps_all_threads_and_tasks_and_the_process_goes_on(main: str, work: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM.format(main=main, work=work)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
            for _ in range(2):
                process.send_signal(signal.SIGUSR1)
                text = (await process.stderr.readuntil(b"the patient one")).decode()
                text += (await process.stderr.readuntil(b"\n\n")).decode()
                assert text.lower().count("thread 0x") == 2, "the main thread and the other one"
                assert ("in stuck" if "stuck" in main else "in run_until_complete") in text
                assert "__main__.wait_for_ever:" in text
        assert process.returncode is None
    finally:
        process.kill()
        await process.wait()
