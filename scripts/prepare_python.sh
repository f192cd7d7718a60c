#!/bin/bash
# Makes a Python environment with the reference libraries that tests compare with, and prints the
# path of its interpreter (tests read it from BATON_PYTHON). Needs the network only the first time.
set -euo pipefail
venv="${BATON_CACHE:-$HOME/.cache/baton}/venv"
packages=(tokenizers==0.23.3 jinja2==3.1.6)
stamp="$venv/packages"
if [[ "$(cat "$stamp" 2>/dev/null)" != "${packages[*]}" ]]; then
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
  echo "${packages[*]}" >"$stamp"
fi
echo "$venv/bin/python"
