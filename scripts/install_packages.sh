#!/bin/bash
# Installs the packages of scripts/packages.txt that are missing. Does nothing, fast, when none is.
set -euo pipefail
list=$(dirname "$0")/packages.txt
mapfile -t wanted < <(sed 's/#.*//; s/[[:space:]]//g; /^$/d' "$list")
installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qxF "$package installed" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install these packages first: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
echo "installing: ${missing[*]}" >&2
# Old lists name versions that are no longer served: update when the first try fails.
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null 2>&1 && exit 0
"${apt[@]}" update </dev/null >&2
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >&2
