"""A headless Chromium, driven by the DevTools protocol: pages as people see them, and all that they ask for."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from support.commands import TIMEOUT, eventually
from support.debian import program

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--allow-file-access-from-files",
    "--remote-debugging-port=0",
)


class Page:
    """A tab. What it has asked for is in `requests`; what went wrong in its scripts in `errors`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def open(self, url: str) -> None:
        """Load a page, and wait until it has loaded."""
        answer = await self._call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer['errorText']}"
        await self.until("document.readyState === 'complete'")

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in JavaScript; a promise is waited for."""
        answer = await self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, condition: str) -> Any:
        """Wait until an expression is true; returns its value."""
        return await eventually(lambda: self.evaluate(condition))

    async def emulate(self, *, width: int, height: int, dark: bool = False) -> None:
        """Take a size of the window, in pixels, and light or dark colours."""
        await self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self._call("Emulation.setEmulatedMedia", features=[scheme])

    async def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(TIMEOUT):
            return await self._answers[number]

    async def _listen(self) -> None:
        async for message in self._socket:
            event = message.json()
            if "id" in event:
                answer = self._answers.pop(event["id"])
                if "error" in event:
                    answer.set_exception(RuntimeError(event["error"]["message"]))
                else:
                    answer.set_result(event["result"])
            elif event["method"] == "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
            elif event["method"] == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description") or details["text"])


@asynccontextmanager
async def browser_page(directory: Path) -> AsyncIterator[Page]:
    """Start a browser whose profile is in a directory; it has one page, which is empty."""
    profile = directory / "profile"
    process = await asyncio.create_subprocess_exec(
        program("chromium"),
        *_FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        address = await _address(profile / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/json/list") as response:
            [target] = [each for each in await response.json() if each["type"] == "page"]
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                listener = asyncio.create_task(page._listen())
                for domain in ("Page", "Network", "Runtime"):
                    await page._call(f"{domain}.enable")
                yield page
            await listener
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _address(file: Path, process: asyncio.subprocess.Process) -> str:
    """Return where the browser listens, which it writes into its profile."""
    async with asyncio.timeout(TIMEOUT):
        while not (file.exists() and file.read_text().strip()):
            assert process.returncode is None, f"chromium ended with exit code {process.returncode}"
            await asyncio.sleep(0.05)
    return f"127.0.0.1:{file.read_text().split()[0]}"
