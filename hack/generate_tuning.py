"""Write the figures of docs/tuning.md: from hack/tuning/results.json, which `make tuning` writes.

    python hack/generate_tuning.py [--check]

Only what stands between two markers is written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import generator
from tuning.report import page
from tuning.results import read

ROOT: Final = Path(__file__).resolve().parents[1]
TARGET: Final = ROOT / "docs/tuning.md"


def main() -> int:
    """Run the command."""
    arguments = generator.parser(__doc__).parse_args()
    try:
        text = page(TARGET.read_text(encoding="utf-8"), read(ROOT / "hack/tuning/results.json"))
    except generator.PlaceUnknown as error:
        print(f"{TARGET}: {error}", file=sys.stderr)
        return 1
    return generator.write({TARGET: text}, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
