#!/bin/sh
# Many more seeds than the everyday run, of every kind: long_seeds_test.sh SIMULATOR.
set -e
"$1" --first=1001 --seeds=3000
"$1" --first=1001 --seeds=3000 --faults
"$1" --first=1001 --seeds=500 --unified
