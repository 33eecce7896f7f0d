#!/usr/bin/env bash
# Provides programs of Debian packages to this checkout: hack/debian_packages.sh [--optional] PROGRAM...
#
# A program that is on the PATH is left at that. Others are unpacked below .cache/debian, with the libraries that the
# machine lacks, and started by .cache/debian/bin/PROGRAM: nothing outside of the checkout changes, and root is not
# needed. On a machine without apt it says what to install, and fails; with --optional it only says so.
set -euo pipefail
cd "$(dirname "$0")/.."

optional=
if [ "${1:-}" = --optional ]; then
  optional=yes
  shift
fi

root=$PWD/.cache/debian

# What each program takes. Debian's chromium does without fonts, but draws no text then.
packages_of() {
  case $1 in
    prometheus | promtool) echo prometheus ;;
    valgrind | vgdb) echo valgrind ;;
    chromium) echo chromium fontconfig-config fonts-dejavu-core ;;
    sshd) echo openssh-server ;;
    *)
      echo "hack/debian_packages.sh knows no program $1; it knows chromium, prometheus, promtool, sshd, valgrind and vgdb" >&2
      exit 2
      ;;
  esac
}

# Where in its package the program lies. Chromium's own starter expects it to be installed.
path_of() {
  case $1 in
    chromium) echo usr/lib/chromium/chromium ;;
    sshd) echo usr/sbin/sshd ;;
    *) echo "usr/bin/$1" ;;
  esac
}

missing=()
wanted=()
for program in "$@"; do
  packages=$(packages_of "$program")
  if ! command -v "$program" > /dev/null && [ ! -x "$root/bin/$program" ]; then
    missing+=("$program")
    for package in $packages; do
      [[ " ${wanted[*]} " == *" $package "* ]] || wanted+=("$package")
    done
  fi
done
[ ${#missing[@]} -gt 0 ] || exit 0

give_up() {
  echo "$1: ${missing[*]} must be on the PATH (macOS: brew install prometheus, brew install --cask chromium), or the" \
    "machine a Debian 12 or newer" >&2
  [ -n "$optional" ] && exit 0
  exit 1
}

for tool in apt-get dpkg-deb; do
  command -v "$tool" > /dev/null || give_up "no $tool on this machine"
done

# A state of its own: neither root nor the lists of the machine are needed, and its own are not touched.
mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial" "$root/bin"
apt() {
  apt-get -qq -o Dir::State::Lists="$root/apt/lists" -o Dir::Cache="$root/apt" -o Dir::Cache::Archives="$root/apt/archives" \
    -o Dir::State::extended_states="$root/apt/extended_states" -o Debug::NoLocking=true -o APT::Sandbox::User="$(id -un)" \
    -o Dir::Log="$root/apt" -o Acquire::Languages=none "$@"
}

echo "unpacking Debian's ${wanted[*]} below .cache/debian"
# A list that cannot be had (a repository of somebody else's) matters only if the packages cannot be had either.
apt update > "$root/apt/update.log" 2>&1 || true
if ! apt install --yes --no-install-recommends --download-only "${wanted[@]}" > "$root/apt/install.log" 2>&1; then
  tail -n 5 "$root/apt/update.log" "$root/apt/install.log" >&2
  give_up "apt-get did not get ${wanted[*]}"
fi
shopt -s nullglob
for archive in "$root"/apt/archives/*.deb; do
  dpkg-deb --extract "$archive" "$root"
done

mkdir -p "$root/usr/lib"
# shellcheck disable=SC2016 # $root is for the shell that starts the program
libraries=$(cd "$root" && { echo ./usr/lib; find . -name '*.so*' -type f -not -path '*/chromium/*' -exec dirname {} +; } |
  sort -u | sed 's|^\.|$root|' | paste -sd:)
cat > "$root/fonts.conf" << END
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <dir prefix="relative">usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
END
for program in "${missing[@]}"; do
  starter=$root/bin/$program
  [ -x "$root/$(path_of "$program")" ] || give_up "Debian's package has no $(path_of "$program")"
  # The checkout may be moved: nothing says where it is now.
  cat > "$starter.new" << END
#!/bin/sh
root=\$(cd "\$(dirname "\$0")/.." && pwd)
LD_LIBRARY_PATH="$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" FONTCONFIG_FILE="\$root/fonts.conf" \\
  XDG_CACHE_HOME="\$root" VALGRIND_LIB="\$root/usr/libexec/valgrind" \\
  exec "\$root/$(path_of "$program")" "\$@"
END
  chmod +x "$starter.new"
  version=--version
  [ "$program" != sshd ] || version=-V
  "$starter.new" "$version" < /dev/null > "$root/apt/version.log" 2>&1 || {
    cat "$root/apt/version.log" >&2
    give_up "$program does not start"
  }
  mv "$starter.new" "$starter"
done
rm -rf "$root/apt"
