#!/bin/sh
# planted_test.sh PATTERN PROGRAM...: passes when the program fails and prints a line of that pattern, or
# dies of a broken invariant.
pattern=$1
shift
# A gtest program would report its failures, which are wanted here, in the place of this test's result.
unset XML_OUTPUT_FILE
output=$("$@" 2>&1)
status=$?
printf '%s\n' "$output" | tail -n 20
case "$status" in
  1) printf '%s\n' "$output" | grep -q "$pattern" || { echo "no line is like $pattern"; exit 1; } ;;
  134) echo "found: a broken invariant stopped it" ;;
  *) echo "not found: exit status $status"; exit 1 ;;
esac
