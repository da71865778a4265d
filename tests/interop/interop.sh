#!/usr/bin/env bash
# Runs a script of this folder with a Python that has what it needs, else says what is missing and is skipped (exit code
# 77).
# usage: interop.sh SCRIPT 'PACKAGES...' WORDS...
set -euo pipefail
script=$1 packages=$2
shift 2
for python in ${VIT_HYBRID_TEST_PYTHON:-python3 /usr/bin/python3}; do
  "$python" -c "import ${packages// /, }" 2>/dev/null || continue
  exec "$python" "$(dirname "${BASH_SOURCE[0]}")/$script" "$@"
done
echo "[skipped] no ${VIT_HYBRID_TEST_PYTHON:-python3} that has all of: $packages"
exit 77
