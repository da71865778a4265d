#!/usr/bin/env bash
# without_races.sh CMAKE BUILD PROGRAM: builds the emulated kernels for ThreadSanitizer and runs them: it must find a race
# that is planted, and no other.
set -euo pipefail
cmake=$1 build=$2 program=$3
"$cmake" --build "$build" --target "$(basename "$program")"
if found=$("$program" --planted-race 2>&1); then
  echo "without_races: ThreadSanitizer has not found the planted race"
  exit 1
fi
[[ $found == *"data race"* ]] || { printf '%s\n' "$found"; exit 1; }
"$program"
