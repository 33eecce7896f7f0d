#!/usr/bin/env bash
# Build the root file system of the image where there is no engine: build_rootfs.sh PYTHON DIRECTORY
#
# In place of the base image is what PYTHON needs: itself, its library, pip, and the shared objects that all of these
# load. No shell and no program besides: whatever the manager needs of the base image beyond that fails. What
# the image adds is made by install.sh, like in the Dockerfile, and lies where it lies in the image. For that /usr/local
# is another one in a mount namespace, which takes root. Exits with 77 where that is not possible.
set -euo pipefail
python=$1 root=$2
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory="$source" -C "$source" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH PIP_ROOT_USER_ACTION=ignore

if ! why=$(unshare --mount --propagation private true 2>&1); then
    echo "build_rootfs: no mount namespace can be made here, which takes root: $why" >&2
    exit 77
fi

prefix=$("$python" -c 'import sys; print(sys.base_prefix)')
name=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')

mkdir -p "$root"/{dev,etc,proc,tmp,usr/local/bin,usr/local/lib,var/run/secrets/kubernetes.io/serviceaccount}
touch "$root/controller_manager_config.yaml" "$root"/dev/{null,random,urandom}
printf 'root:x:0:0:root:/root:/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\n' >"$root/etc/group"
printf '127.0.0.1 localhost\n' >"$root/etc/hosts"

cp -L "$prefix/bin/$name" "$root/usr/local/bin/$name"
ln -s "$name" "$root/usr/local/bin/python3"
# Like in python:slim: neither tests nor bytecode.
tar -C "$prefix/lib" --exclude=__pycache__ --exclude="$name/site-packages" --exclude="$name/dist-packages" \
    --exclude="$name/test" --exclude="$name/idlelib" --exclude="$name/config-*" -c "$name" | tar -C "$root/usr/local/lib" -x

share() {
    find "$root/usr" \( -name '*.so*' -o -name "$name" \) -type f -exec ldd {} + 2>/dev/null |
        grep -oE '/[^ ()]+\.so[^ ():]*' | sort -u | while read -r library; do
        case $library in "$root"/*) continue ;; esac
        [ -e "$root$library" ] || install -D "$library" "$root$library"
    done
}

share
# shellcheck disable=SC2016 # the inner shell expands them
unshare --mount --propagation private bash -euc '
    mount --bind "$2/usr/local" /usr/local
    /usr/local/bin/python3 -m ensurepip --default-pip >/dev/null
    sh "$1/hack/image/install.sh" /usr/local/bin/python3 "$1" /usr/local/lib/trainmaster
' bash "$source" "$root"
share
