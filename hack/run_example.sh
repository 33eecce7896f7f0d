#!/usr/bin/env bash
# `make run`: train an example on an embedded cluster: run_example.sh torch|numpy
#
# Exits as the TrainJob does. A cluster that is started for this is stopped at the end; one that ran before goes on.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$PWD/.venv/bin
export PATH="$bin:$PATH" TRAINMASTER_HOME="$PWD/.trainmaster"
unset KUBECONFIG # the example never goes to a cluster that happens to be configured

say() { echo "==> $*" >&2; }

torch_version=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' hack/requirements.txt)

torch_works() {
    python -c 'import sys, torch; sys.exit(torch.__version__.partition("+")[0] != sys.argv[1])' "$torch_version" 2>&1
}

install_torch() {
    local from=()
    if [ -n "${TORCH_INDEX_URL:-}" ]; then from=(--extra-index-url "$TORCH_INDEX_URL"); fi
    python -m pip install --quiet --disable-pip-version-check --no-input ${from[@]+"${from[@]}"} \
        -c hack/requirements.txt --group torch
}

example=$1
if [ "$example" = numpy ]; then
    say "example: numpy-digits, the light path without PyTorch, since LIGHT is set"
elif torch_works >/dev/null; then
    say "example: torch-digits, since PyTorch $torch_version is installed (LIGHT=1 does without)"
else
    say "installing PyTorch $torch_version, once; where pip finds only a build with CUDA, that is several GB:" \
        "LIGHT=1 does without, TORCH_INDEX_URL=... names an index with smaller builds"
    if install_torch && problem=$(torch_works); then
        say "example: torch-digits, with PyTorch $torch_version"
    else
        say "PyTorch $torch_version cannot be used here: ${problem:-pip could not install it, see above}"
        say "example: numpy-digits, the light path instead"
        example=numpy
    fi
fi

status=0
trainmaster cluster status >/dev/null || status=$?
if [ "$status" -ne 3 ]; then # 1: it runs without its manager; `trainmaster run` says what is wrong with that
    say "using the embedded cluster that runs in .trainmaster"
else
    trap 'trainmaster cluster down >&2' EXIT
    trainmaster cluster up --detach
fi

# Each run is a TrainJob of its own, whatever an earlier one that was killed may have left.
sed 's/^  name: \(.*-digits\)$/  generateName: \1-/' "examples/$example-digits/trainjob.yaml" |
    trainmaster run --delete --on-interrupt delete --kubeconfig .trainmaster/kubeconfig \
        "examples/$example-digits/runtime.yaml" "examples/$example-digits/script.yaml" -
