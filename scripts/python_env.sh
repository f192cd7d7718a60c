#!/bin/bash
# Prints the bin folder of a virtual environment with scripts/requirements.txt, made once per content.
set -euo pipefail
list=$(cd "$(dirname "$0")" && pwd)/requirements.txt
stamp=$(cat "$list" <(python3 --version) | sha256sum | cut -c1-12)
folder=${BATON_CACHE:-${HOME:-/root}/.cache/baton}/python-$stamp
if [ ! -f "$folder/.complete" ]; then
  rm -rf "$folder"
  python3 -m venv "$folder" >&2
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list" </dev/null >&2
  touch "$folder/.complete"
fi
echo "$folder/bin"
