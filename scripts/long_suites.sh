# Sourced by ./test: the long suites. A target joins one by a tag: tags = ["long-equality"].
long_suites="equality fuzz goldens overload sanitizers seeds"
. scripts/fuzz_suite.sh
not_long=$(printf -- '-long-%s,' $long_suites)-manual
finish_flags=()

# Parts of `sanitizers`, also names of their own for .ci/run: sanitizers-asan and so on.
sanitizer_parts="asan ubsan tsan clang"

known_suite() {
  local name
  for name in $long_suites $(printf 'sanitizers-%s ' $sanitizer_parts); do [ "$1" = "$name" ] && return 0; done
  return 1
}

# What links gRPC has too many uninstrumented frames for the sanitizers to be right about it; protobuf
# alone is harmless: messages are used by one thread.
without_grpc='(//... except rdeps(//..., //bazel:grpc))'

query() { baton_bazel query --noshow_progress "$1" 2>/dev/null; }

# The tests of a build configuration; asan also runs what is tagged `asan-e2e`.
sanitizer_part() {
  local part=$1 targets
  targets=$(query "tests($without_grpc)")
  case $part in
    asan) targets+=" $(query 'attr(tags, asan-e2e, tests(//...))')" ;;
    tsan) targets=$(query "tests($without_grpc) except attr(tags, no-tsan, tests(//...))") ;;
    clang) targets+=" $(query "kind(\"cc_.* rule\", $without_grpc) except attr(tags, manual, //...)")" ;;
  esac
  # shellcheck disable=SC2086
  bazel_test --config="$part" --test_tag_filters="$not_long" $targets
  [ "$part" = clang ] && layering_check_is_proven
}

# The include that g++ accepts through a dependency must fail under clang.
layering_check_is_proven() {
  local log=$work/layering status=failed
  if ! baton_bazel build --config=clang //bazel/forbidden:through_dependency >"$log" 2>&1 &&
      grep -q 'common/mutex.h.*\|does not depend on a module exporting' "$log"; then
    status=passed
  fi
  [ $status = passed ] || cat "$log"
  echo "{\"name\": \"clang/layering-check-refuses-an-include-through-a-dependency\", \"status\": \"$status\"}" >"$work/layering.json"
  report+=(--checks "$work/layering.json")
}

tagged_suite() {
  local targets
  targets=$(query "attr(tags, \"long-$1\", tests(//...))")
  if [ -z "$targets" ]; then
    echo "no test is tagged long-$1" >&2
    exit 1
  fi
  # shellcheck disable=SC2086
  bazel_test --test_timeout=3500 $targets
}

# run_long_suite NAME [SECONDS]: with SECONDS, stops cleanly after that many; what did not end is
# named as left out.
run_long_suite() {
  local part
  if [ -n "${2:-}" ]; then
    export BATON_TIME_LIMIT=$2
    finish_flags=(--interrupted-ok)
  fi
  case $1 in
    fuzz) fuzz_suite ;;
    sanitizers) for part in $sanitizer_parts; do sanitizer_part "$part"; done ;;
    sanitizers-*) sanitizer_part "${1#sanitizers-}" ;;
    *) tagged_suite "$1" ;;
  esac
}
