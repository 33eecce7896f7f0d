#!/usr/bin/env bash
# `make plugin-tour`: what the author of a plugin does, from wheels to containment, in an environment of its own
#
# Builds the wheels of Trainmaster and of the examples in examples/plugins, installs them into a fresh virtual environment,
# and tries them on an embedded cluster: what they do, and what becomes of others when one of them breaks. Then it does what
# docs/write-a-plugin.md tells one to do. Stops at the first thing that is not as expected; leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."

checkout=$PWD
python=$PWD/.venv/bin/python # has hatchling, pinned
tour=$(mktemp -d)
name= # of the step that is under way

say() {
    name=$*
    echo "==> $* (${SECONDS}s)"
}

clean_up() {
    local status=$?
    if [ "$status" -ne 0 ]; then
        echo "plugin tour: stopped at: $name" >&2
        tail -n 30 "$tour"/*/.trainmaster/*.log >&2 2>/dev/null || true
    fi
    for home in "$tour"/*/.trainmaster "$tour"/*/*/.trainmaster; do
        if [ -d "$home" ]; then "$tour/venv/bin/trainmaster" cluster down --purge --state-dir "$home" >/dev/null || true; fi
    done
    rm -rf "$tour"
    exit "$status"
}
trap clean_up EXIT

# Runs a command, and fails unless what it prints holds a text.
expect() {
    local text=$1 printed
    shift
    printed=$("$@" 2>&1) || { echo "$printed" >&2 && return 1; }
    grep -qF -- "$text" <<<"$printed" || {
        echo "expected '$text' from: $*" >&2
        echo "$printed" >&2
        return 1
    }
}

# The same of one that has to fail.
refuse() {
    local text=$1 printed
    shift
    if printed=$("$@" 2>&1); then
        echo "expected this to fail: $*" >&2
        return 1
    fi
    grep -F -- "$text" <<<"$printed" || {
        echo "expected '$text' from: $*" >&2
        echo "$printed" >&2
        return 1
    }
}

# Waits until a command prints a text.
eventually() {
    local text=$1 printed
    shift
    for _ in $(seq 300); do
        printed=$("$@" 2>&1) || true
        if grep -qF -- "$text" <<<"$printed"; then return; fi
        sleep 0.2
    done
    echo "waited in vain for '$text' from: $*" >&2
    echo "$printed" >&2
    return 1
}

blocked() { # prints why a TrainJob is blocked
    kubectl get trainjob "$1" -o jsonpath='{.status.conditions[?(@.type=="Blocked")]}'
}

completes() { kubectl wait --for=condition=Complete --timeout=60s "trainjob/$1"; }

if ! command -v kubectl >/dev/null; then
    echo "plugin tour: skipped, since it shows everything by kubectl, and there is none"
    exit
fi

say "build the wheels of Trainmaster and of the examples"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$tour/dist" \
    . examples/plugins/*/ 2>"$tour/pip.log" || { cat "$tour/pip.log" >&2 && exit 1; }

say "install them into a fresh environment, with the pinned versions of what they need"
hack/make_venv.sh "$python" "$tour/venv"
export PATH="$tour/venv/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
unset KUBECONFIG TRAINMASTER_HOME PYTHONPATH VIRTUAL_ENV
python -m pip install --quiet -c hack/requirements.txt hatchling pytest \
    "$(echo "$tour"/dist/trainmaster-*.whl)[local]" "$tour"/dist/*.whl
python -m pip check

say "load them with a configuration: a wrong option is told with its path, the right ones are taken"
mkdir "$tour/cluster"
cd "$tour/cluster"
cat >config.yaml <<'END'
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
plugins:
  quarantine: {failures: 3, period: 1h}
  options:
    acme-policy: {registries: registry.acme.example, exempt_namespaces: [kube-public]}
    kai: {scheduler_name: default-scheduler}
END
refuse "plugins.options.acme-policy.registries" trainmaster plugins check --config config.yaml
sed -i.bak 's/registries: registry.acme.example/registries: [registry.acme.example]/' config.yaml
expect "" trainmaster plugins check --config config.yaml
for plugin in acme-policy deepspeed indexed-job kai; do
    expect "state: loaded" trainmaster plugins show "$plugin" --config config.yaml
done

say "start the embedded cluster with them"
trainmaster cluster up --detach --config config.yaml >/dev/null
export KUBECONFIG=$PWD/.trainmaster/kubeconfig
examples=$checkout/examples/plugins

say "a TrainJob by the rules of the company: its NetworkPolicy, its budget, its label"
kubectl apply -f "$examples/company-policy/runtime.yaml" -f "$examples/company-policy/trainjob.yaml"
completes compliant
kubectl get networkpolicies,poddisruptionbudgets
expect "compliant" kubectl get networkpolicy compliant -o "jsonpath={.metadata.ownerReferences[0].name}"
expect "2" kubectl get poddisruptionbudget compliant -o "jsonpath={.spec.minAvailable}"
expect "compliant-node-0-0" kubectl get pods -l acme.example/cost-centre=robotics -o name

say "one against the rules is refused, by its field"
sed -e 's/name: compliant/name: foreign/' -e 's/trainer:/trainer: {image: evil\/train}\n  ignored:/' \
    "$examples/company-policy/trainjob.yaml" | sed '/ignored:/,$d' >foreign.yaml
refuse "spec.trainer.image: Forbidden: must be an image of registry.acme.example" kubectl apply -f foreign.yaml

say "a TrainJob that becomes an Indexed Job"
cp "$examples/indexed-job/runtime.yaml" "$examples/indexed-job/trainjob.yaml" .
sed -i.bak 's/python:3.13-slim/registry.acme.example\/python:3.13/' runtime.yaml
sed -i.bak 's/^  namespace: default/&\n  labels: {acme.example\/cost-centre: robotics}/' trainjob.yaml
kubectl apply -f runtime.yaml -f trainjob.yaml
completes plain
kubectl get jobs,services -l jobset.sigs.k8s.io/jobset-name=plain
expect "2/2" kubectl get jobs plain-node-0
refuse "NotFound" kubectl get jobset plain

say "three TrainJobs of another plugin wait, suspended"
cp "$examples/framework/runtime.yaml" deepspeed.yaml
kubectl apply -f deepspeed.yaml
cat >held.yaml <<'END'
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: held-1, namespace: default, labels: {acme.example/cost-centre: robotics}}
spec:
  suspend: true
  runtimeRef: {name: deepspeed}
  trainer: {command: [python3, -c, "print('trained after all')"]}
END
for number in 1 2 3; do
    sed "s/held-1/held-$number/" held.yaml | kubectl apply -f -
    eventually Suspended kubectl get trainjob "held-$number" -o "jsonpath={.status.conditions[*].type}"
done

say "break that plugin, and start again: its TrainJobs are blocked, and say because of whom"
installed=$(python -c 'import acme_deepspeed; print(acme_deepspeed.__file__)')
cp "$installed" "$tour/acme_deepspeed.py"
sed -i.bak 's/meeting.slices > 1/meeting.slice_count > 1/' "$installed"
trainmaster cluster down >/dev/null
trainmaster cluster up --detach --config config.yaml >/dev/null
eventually "plugin deepspeed" blocked held-1
blocked held-1 && echo

say "others train on meanwhile, to the end, and new ones of the broken plugin are refused by its name"
sed 's/name: compliant/name: untouched/' "$examples/company-policy/trainjob.yaml" >untouched.yaml
kubectl apply -f untouched.yaml
completes untouched
sed 's/name: held-1/name: another/' held.yaml >another.yaml
refuse "plugin deepspeed" kubectl apply -f another.yaml

say "since it has failed for three TrainJobs in a row it is quarantined"
eventually PluginQuarantined kubectl get trainjobs -o "jsonpath={.items[*].status.conditions[*].reason}"

say "mend it: its TrainJobs train after all"
cp "$tour/acme_deepspeed.py" "$installed"
trainmaster cluster down >/dev/null
trainmaster cluster up --detach --config config.yaml >/dev/null
kubectl patch trainjob held-1 --type merge -p '{"spec": {"suspend": false}}'
completes held-1
trainmaster cluster down --purge >/dev/null

say "docs/write-a-plugin.md: begin a package, test it, try it, by the commands that stand there"
python -m pip uninstall --quiet --yes acme-deepspeed acme-kai acme-policy trainmaster-indexed-job
mkdir "$tour/guide"
cd "$tour/guide"
python - "$checkout/docs/write-a-plugin.md" <<'END'
import pathlib
import re
import sys

text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
files = re.findall(r"`([a-z.]+\.yaml)`:\n\n```yaml\n(.*?)```", text, re.DOTALL)
write = "".join(f"cat >{name} <<'EOF'\n{body}EOF\n" for name, body in files)
commands = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
entering = next(line for line in commands.splitlines() if line.startswith("cd "))
*before, last = commands.rstrip().replace(entering, f"{entering}\n{write}").splitlines(keepends=True)
pathlib.Path("guide.sh").write_text("".join(before))
pathlib.Path("end.sh").write_text(f"{entering}\n{last}\n")
END
unset KUBECONFIG # the guide says which
PIP_QUIET=1 bash -euo pipefail -x guide.sh
KUBECONFIG=$(echo "$PWD"/*/.trainmaster/kubeconfig)
export KUBECONFIG
completes first
expect pod/first-node-0-1 kubectl get pods -l example.com/cost-centre=robotics -o name
bash -euo pipefail end.sh

say "the plugin tour is at its end"
