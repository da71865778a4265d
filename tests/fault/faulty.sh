#!/bin/sh
# Runs a command whose calls fail as FAULT says, by SHIM, the library of tests/support/failing_calls.c.
#
#   faulty.sh FAULT SHIM COMMAND...
#
# The fault is set within, so that a launcher before it does not see it. AddressSanitizer has to be loaded first.
fault=$1 shim=$2
shift 2
asan=$(ldd "$1" | awk '$1 ~ /^libasan/ { print $3 }')
VIT_HYBRID_TEST_FAULT="$fault" LD_PRELOAD="${asan:+$asan:}$shim${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@"
