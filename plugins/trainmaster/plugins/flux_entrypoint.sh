# Runs in place of the user's command, which it gets as its arguments: starts a broker of Flux on each node, and the
# command under the one that leads. Above stand the size of this job and the host that leads.

set -uo pipefail

flux=/mnt/flux
view=$flux/view
config=$flux/config
socket=local://$config/run/flux/local

cp -Rf "$flux/software/." /opt/software/ || exit 1

# The view's own links to its interpreter lead to where it was built.
for packages in "$view"/lib/python3*/site-packages; do
    [[ -d $packages ]] || continue
    python=$(basename "$(dirname "$packages")")
    if [[ -f $view/bin/$python ]]; then
        ln -sfn "$python" "$view/bin/python3"
        ln -sfn "$python" "$view/bin/python"
    fi
    export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$packages"
done

# What the user's image has comes first; Flux adds what it lacks.
export PATH="$PATH:$view/bin"
export FLUX_RC_EXTRA="$view/etc/flux/rc1.d"

# For people in a shell of this container: `. /mnt/flux/flux-view.sh; flux proxy $fluxsocket flux resource list`.
{
    printf 'export PATH=%q\n' "$PATH"
    printf 'export PYTHONPATH=%q\n' "${PYTHONPATH:-}"
    printf 'export LD_LIBRARY_PATH=%q\n' "${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$view/lib"
    printf 'export fluxsocket=%q\n' "$socket"
} > "$flux/flux-view.sh"
printf 'flux module %s\n' 'remove sched-simple' 'load sched-fluxion-resource' 'load sched-fluxion-qmanager' \
    > "$flux/load-fluxion.sh"

# Flux refuses a certificate that others could read, and the one of the volume cannot be changed.
install -m 0400 /curve/curve.cert "$config/etc/curve/curve.cert" || exit 1

flux R encode --hosts="$(< "$config/etc/flux/system/hostlist")" "${resources[@]}" > "$config/etc/flux/system/R" || exit 1

options=(
    -Stbon.fanout=256
    -Srundir="$config/run/flux"
    -Sstatedir="$config/var/lib/flux"
    -Slocal-uri="$socket"
    -Slog-stderr-level=6
    -Slog-stderr-mode=local
)
configuration=$config/etc/flux/config
status=0
if [[ $(uname -n) == "$lead_host" ]]; then
    if (( $# == 0 )); then
        # Nothing to run: the instance stays until somebody, who has come in through `flux proxy`, shuts it down.
        flux broker --config-path "$configuration" "${options[@]}" -Sbroker.rc2_none || status=$?
    else
        flux start -o --config "$configuration" "${options[@]}" flux run "${run_flags[@]}" "$@" || status=$?
    fi
else
    # The leader may not be there yet, or come back.
    until flux start -o --config "$configuration" "${options[@]}"; do
        echo "the broker ended with status $?; another try in 15 seconds" >&2
        sleep 15
    done
fi

# Helpers of the Flux Operator wait for this name.
touch "$flux/flux-operator-complete.txt"
exit "$status"
