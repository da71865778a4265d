#!/usr/bin/env bash
# Runs a script of this folder with a Python that has what it needs, else says what is missing and is skipped (exit code
# 77).
# usage: interop.sh SCRIPT 'PACKAGES...' WORDS...
set -euo pipefail
script=$1 packages=$2
shift 2
python=${VIT_HYBRID_TEST_PYTHON:-python3}
command -v "$python" >/dev/null || { echo "[skipped] there is no $python"; exit 77; }
for package in $packages; do
  "$python" -c "import $package" 2>/dev/null || { echo "[skipped] $python has no package $package"; exit 77; }
done
exec "$python" "$(dirname "${BASH_SOURCE[0]}")/$script" "$@"
