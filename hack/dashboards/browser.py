"""Pictures of pages, by a browser without a window."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bench.api import BenchmarkFailed
from dashboards.prometheus import program

_TIMEOUT: Final = 120.0


def picture(html: str, *, width: int, height: int, target: Path) -> None:
    """Write a page as PNG."""
    with tempfile.TemporaryDirectory(prefix="trainmaster-page-") as directory:
        page = Path(directory) / "page.html"
        page.write_text(html, encoding="utf-8")
        picture_of(page.as_uri(), width=width, height=height, target=target)


def picture_of(url: str, *, width: int, height: int, target: Path) -> None:
    """Write a page that is served as PNG."""
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="trainmaster-browser-") as directory:
        done = subprocess.run(  # noqa: S603 - our own page
            [
                program("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--disable-dev-shm-usage", f"--user-data-dir={directory}/profile", f"--window-size={width},{height}",
                f"--screenshot={target.resolve()}", url,
            ],
            capture_output=True, text=True, check=False, timeout=_TIMEOUT,
        )  # fmt: skip
    if not target.exists() or done.returncode != 0:
        raise BenchmarkFailed(f"chromium made no picture of {target.name}: {done.stderr[-500:]}")
    # With a hundred colors in place of all shades it takes a third.
    command = [program("pngquant"), "--force", "--ext", ".png", "--strip", "100", str(target)]
    subprocess.run(command, check=True, timeout=_TIMEOUT)  # noqa: S603 - our own picture
