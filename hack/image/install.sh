#!/bin/sh
# Install the controller into a directory: install.sh PYTHON SOURCE DIRECTORY
#
# These are the steps of the image: the Dockerfile runs them, and so does build_rootfs.sh, where there is no engine.
# SOURCE is a checkout; DIRECTORY becomes a virtual environment without pip, which belongs where it is made.
#
# - Everything that is downloaded is in hack/image/requirements.txt, and checked by its hash. The wheel is built without
#   hack/ and deploy/webhooks, so that there is nothing of the embedded cluster in it.
# - Modules are compiled, and nobody looks at the time of their files: the tree is read-only. So are those of the
#   standard library that a manager imports, which takes half of its start otherwise: python:slim has no bytecode.
#   All of it is below DIRECTORY/pycache, where PYTHONPYCACHEPREFIX has Python look. Left out is what no
#   command imports: of kubernetes-asyncio all but its configuration, 25 MB, version 1 of pydantic, and what others
#   compile C with; and what only kubeconfigs need, urllib3 and dateutil, 1 MB.
# - Shared objects lose their symbols for debuggers, 13 MB. Tests, what only compilers and type checkers read, and pages
#   for people, 3 MB, are left out.
# - Twice the same with the same interpreter: SOURCE_DATE_EPOCH is the time of every file.
set -eu
python=$1 source=$2 directory=$3

umask 022
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:?is the time of all files, in seconds; for instance that of the commit}"
export PIP_NO_CACHE_DIR="${PIP_NO_CACHE_DIR-1}" PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_QUIET=1
export PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
unset PIP_PYTHON

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/tree/deploy"
for each in pyproject.toml README.md LICENSE controller runtime plugins metrics deploy/crds deploy/runtimes; do
    cp -R "$source/$each" "$work/tree/$each"
done
"$python" -m venv "$work/build"
"$work/build/bin/python" -m pip download --require-hashes --dest "$work/wheel" -r "$source/hack/image/requirements.txt"
"$work/build/bin/python" -m pip install --no-index --find-links "$work/wheel" hatchling
"$work/build/bin/python" -m pip wheel --no-deps --no-build-isolation --wheel-dir "$work/wheel" "$work/tree"

"$python" -m venv --without-pip "$directory"
# By name and not by file: pip would note the file's place.
"$work/build/bin/python" -m pip --python "$directory/bin/python" install --no-compile --no-index \
    --find-links "$work/wheel" 'trainmaster[uvloop]'

find "$directory" -type d -name tests -prune -exec rm -rf {} +
find "$directory/lib" \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -name '*.md' \) -delete
find "$directory" -name '*.so' -exec strip --strip-unneeded {} +
export PYTHONPYCACHEPREFIX="$directory/pycache"
compile="$directory/bin/python -m compileall -q --invalidation-mode unchecked-hash"
$compile -x '/(kubernetes_asyncio/(client|dynamic|leaderelection|stream|utils|watch)|pydantic/v1|cffi|pycparser|urllib3|dateutil)/' "$directory/lib"
"$directory/bin/python" -c '
import sys
import trainmaster.controller.cli.manager

for module in list(sys.modules.values()):
    file = getattr(module, "__file__", None) or ""
    if file.endswith(".py") and "/site-packages/" not in file:
        print(file)
' | LC_ALL=C sort | $compile -i -
rm -f "$directory/.gitignore" "$directory"/bin/[Aa]ctivate*
find "$directory" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
