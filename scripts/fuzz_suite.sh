# Sourced by long_suites.sh: `./test --long fuzz`. Each fuzzer of tests/fuzz is one test case: it looks
# for FUZZ_SECONDS (60), from the kept corpus and what earlier runs found, which lies with its log and
# the inputs that broke it in $BATON_CACHE/fuzz/NAME.
FUZZ_SECONDS=${FUZZ_SECONDS:-60}
# Beyond its own time: to read the corpus, and to end.
fuzz_margin_s=15

fuzz_case() { printf '{"name": "fuzz/%s", "status": "%s"}\n' "$1" "$2" >>"$work/fuzz.json"; }

# run_fuzzer NAME PROGRAM
run_fuzzer() {
  local folder=$BATON_CACHE/fuzz/$1 flags found
  mkdir -p "$folder/corpus"
  flags=(-max_total_time="$FUZZ_SECONDS" -timeout=20 -print_final_stats=1 -artifact_prefix="$folder/")
  [ -f "tests/fuzz/$1.dict" ] && flags+=(-dict="tests/fuzz/$1.dict")
  if "$2" "${flags[@]}" "$folder/corpus" "tests/fuzz/corpus/$1" </dev/null >"$folder/log" 2>&1; then
    echo "passed   fuzz/$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/log") inputs"
    fuzz_case "$1" passed
    return
  fi
  found=$(sed -n 's/.*Test unit written to //p' "$folder/log" | tail -1)
  tail -60 "$folder/log"
  echo "failed   fuzz/$1: ${found:-no input was written; see $folder/log}"
  [ -n "$found" ] && echo "         replay: scripts/bazel.sh run --config=fuzz //tests/fuzz:$1_fuzzer -- $found"
  fuzz_case "$1" failed
}

# planted_fault_is_found FUZZER_planted_FAULT BIN: it must stop and write an input.
planted_fault_is_found() {
  local name=$1 fuzzer=${1%%_planted_*} folder=$work/planted
  rm -rf "$folder"
  mkdir -p "$folder/corpus"
  if ! "$2/tests/fuzz/$name" -max_total_time=30 -timeout=20 -artifact_prefix="$folder/" "$folder/corpus" \
    "tests/fuzz/corpus/$fuzzer" </dev/null >"$folder/log" 2>&1 && grep -q "Test unit written to" "$folder/log"; then
    echo "passed   fuzz/$name is found"
    fuzz_case "$name-is-found" passed
  else
    echo "failed   fuzz/$name is not found"
    tail -20 "$folder/log"
    fuzz_case "$name-is-found" failed
  fi
}

fuzz_suite() {
  local end=$((SECONDS + ${BATON_TIME_LIMIT:-86400})) targets planted target name bin
  targets=$(query 'attr(tags, "fuzzer", //tests/fuzz:all)')
  planted=$(query 'attr(tags, "planted", //tests/fuzz:all)')
  : >"$work/fuzz.json"
  report+=(--checks "$work/fuzz.json")
  [ -n "$targets" ] && [ -n "$planted" ] || { fuzz_case targets failed; return; }
  # shellcheck disable=SC2086
  timeout --signal=INT --kill-after=120 "${BATON_TIME_LIMIT:-86400}" scripts/bazel.sh build --config=fuzz $targets $planted </dev/null
  case $? in
    0) ;;
    124) echo "LEFT OUT all of fuzz: it was still being built"; return ;;
    *) fuzz_case build failed; return ;;
  esac
  bin=$(baton_bazel info --config=fuzz bazel-bin 2>/dev/null)
  # First: what finds nothing passes everything.
  for target in $planted; do planted_fault_is_found "${target##*:}" "$bin"; done
  for target in $targets; do
    name=${target##*:}
    name=${name%_fuzzer}
    if [ $((SECONDS + FUZZ_SECONDS + fuzz_margin_s)) -gt "$end" ]; then
      echo "LEFT OUT fuzz/$name"
    else
      run_fuzzer "$name" "$bin/tests/fuzz/${name}_fuzzer"
    fi
  done
}
