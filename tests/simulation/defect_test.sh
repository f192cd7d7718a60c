#!/bin/sh
# Passes when the simulator, run with these arguments, finds a problem or dies of a broken invariant.
output=$("$@" 2>&1)
status=$?
printf '%s\n' "$output" | tail -n 20
case "$status" in
  1) printf '%s\n' "$output" | grep -q '^seed ' || { echo "no seed is named"; exit 1; } ;;
  134) echo "found: a broken invariant stopped it" ;;
  *) echo "not found: exit status $status"; exit 1 ;;
esac
