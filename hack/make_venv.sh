#!/usr/bin/env bash
# Make a virtual environment: make_venv.sh PYTHON DIRECTORY
set -euo pipefail
python=$1 venv=$2

fail() {
    echo "trainmaster: $*" >&2
    exit 1
}

command -v "$python" >/dev/null ||
    fail "there is no '$python'; install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "'$python' is $("$python" --version 2>&1), but 3.11 or newer is needed; name one: make PYTHON=python3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "'$python' cannot make virtual environments; install its venv module (on Debian and Ubuntu: python3-venv)"

echo "making $venv with $("$python" --version)"
"$python" -m venv --clear "$venv"
# That of an older Python knows no groups of pyproject.toml.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
    -c "$(dirname "$0")/requirements.txt" pip
