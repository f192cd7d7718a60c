#!/bin/sh
# Many more seeds than the everyday run, of every kind: long_seeds_test.sh SIMULATOR.
set -e
"$1" --first=1001 --seeds=3000
"$1" --first=1001 --seeds=3000 --faults
"$1" --first=1001 --seeds=500 --unified
"$1" --first=1001 --seeds=1000 --standstills
"$1" --first=1001 --seeds=500 --windows
"$1" --first=1001 --seeds=500 --windows --small-pools
"$1" --first=1001 --seeds=500 --windows --faults
"$1" --first=1001 --seeds=1000 --prefixes
"$1" --first=1001 --seeds=500 --prefixes --unified
"$1" --first=1001 --seeds=500 --prefixes --faults
"$1" --first=1001 --seeds=1000 --revocations
"$1" --first=1001 --seeds=500 --revocations --prefixes
"$1" --first=1001 --seeds=1000 --revocations --faults
"$1" --first=1001 --seeds=500 --revocations --standstills
