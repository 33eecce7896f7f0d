"""Write the OpenAPI definitions of the kinds that the embedded cluster serves; `--check` only compares.

They are those of the release that the embedded cluster says it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import generator
import kubernetes_schemas
from trainmaster.devcluster.apiserver.schema import RELEASE

TARGET = Path(__file__).parent / "trainmaster" / "devcluster" / "apiserver" / "schema" / "definitions.json"


def main() -> int:
    """Generate definitions.json: definition name -> definition, one a line."""
    content = kubernetes_schemas.one_per_line(kubernetes_schemas.load(release=RELEASE)) + "\n"
    return generator.write({TARGET: content}, check=generator.parser(__doc__).parse_args().check)


if __name__ == "__main__":
    sys.exit(main())
