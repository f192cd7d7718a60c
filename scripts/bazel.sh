#!/bin/bash
# bazel with the project's caches: scripts/bazel.sh build //common:log
# Bazel does not see changes below /usr, so the caches are keyed by the versions of what lies there
# (less the cross compiler, which Bazel does not use).
set -uo pipefail
cache=${BATON_CACHE:-${HOME:-/root}/.cache/baton}
stamp=$(dpkg-query -W 'g++*' 'clang*' '*-dev' 'protobuf-compiler*' 2>/dev/null | grep -v -e -aarch64- | sha256sum | cut -c1-12)
command=$1
shift
startup=(--output_user_root="$cache/$stamp/root" --host_jvm_args=-Xmx1g --max_idle_secs=600)
case $command in
  build | test | run | coverage) flags=(--disk_cache="$cache/$stamp/disk" --show_progress_rate_limit=20) ;;
  *) flags=() ;;
esac
mkdir -p "$cache/$stamp"
exec bazel "${startup[@]}" "$command" "${flags[@]}" "$@"
