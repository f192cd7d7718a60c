# Sourced by the scripts at the root: the cache, the packages, and how Bazel is called.
set -uo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT" || exit 1
export HOME=${HOME:-/root}
export BATON_CACHE=${BATON_CACHE:-$HOME/.cache/baton}

install_packages() { scripts/install_packages.sh || exit 1; }

baton_bazel() { scripts/bazel.sh "$@" </dev/null; }

# The expected values of independent programs lie beside a checkout; tests skip, or fail with
# CI=true, without them.
find_shared() {
  local folder
  for folder in "${BATON_SHARED:-}" "$ROOT/../shared" "$ROOT/shared"; do
    if [ -n "$folder" ] && [ -d "$folder/oracles" ]; then
      BATON_SHARED=$(cd "$folder" && pwd)
      export BATON_SHARED
      return
    fi
  done
}

find_model() {
  BATON_MODEL=${BATON_MODEL:-$(scripts/fetch_model.sh)} || { unset BATON_MODEL; return 1; }
  export BATON_MODEL
}

# The interpreter beside the reference libraries that tests compare with (scripts/requirements.txt).
find_python() {
  local folder
  folder=$(scripts/python_env.sh) || return 1
  export BATON_PYTHON=${BATON_PYTHON:-$folder/python}
}
