# Sourced by ./test: the long suites. A target joins one by a tag: tags = ["long-equality"].
long_suites="equality faults fuzz goldens overload sanitizers seeds soak"
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
  targets=$(query "tests($without_grpc) except attr(tags, 'no-$part|no-sanitizers|long-|manual', //...)")
  case $part in
    asan) targets+=" $(query 'attr(tags, asan-e2e, tests(//...))')" ;;
    # What links gRPC has the most threads: it is compiled, so that -Wthread-safety sees it.
    clang) targets+=" $(query "kind('cc_(library|binary) rule', //...) except attr(tags, manual, //...)")" ;;
  esac
  # First, so that a slice that runs out of time has it: what notices nothing passes everything.
  what_is_planted_is_refused "$part"
  # shellcheck disable=SC2086
  bazel_test --config="$part" $targets
}

what_is_planted_is_refused() {
  case $1 in
    asan)
      fault_is_reported asan heap-use-after-free "AddressSanitizer: heap-use-after-free"
      fault_is_reported asan stack-use-after-return "AddressSanitizer: stack-use-after-return"
      fault_is_reported asan leak "LeakSanitizer: detected memory leaks"
      ;;
    ubsan)
      fault_is_reported ubsan signed-overflow "runtime error: signed integer overflow"
      fault_is_reported ubsan misaligned-load "runtime error: load of misaligned address"
      ;;
    tsan) fault_is_reported tsan data-race "ThreadSanitizer: data race" ;;
    clang)
      # The include that g++ accepts through a dependency.
      is_refused clang/layering "does not depend on a module exporting '*common/mutex.h" \
        build --config=clang //bazel/forbidden:through_dependency
      is_refused clang/thread-safety "requires holding mutex 'mutex_'" \
        build --config=clang //bazel/forbidden:unlocked
      ;;
  esac
}

# fault_is_reported PART FAULT WORDS: as a test of its own, with the options that every test gets.
fault_is_reported() {
  is_refused "$1/reports-$2" "$3" test --config="$1" --nocache_test_results --test_arg="$2" //bazel/forbidden:sanitizer_faults
}

# is_refused NAME WORDS BAZEL-COMMAND...: a case that passes when Bazel fails and says so.
is_refused() {
  local name=$1 words=$2 status=failed case=$work/planted.${#report[@]}
  shift 2
  if ! baton_bazel "$@" >"$work/log" 2>&1 && grep -q "$words" "$work/log"; then status=passed; else cat "$work/log"; fi
  echo "{\"name\": \"$name\", \"status\": \"$status\"}" >"$case"
  report+=(--checks "$case")
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
