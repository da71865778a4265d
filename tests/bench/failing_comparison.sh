#!/usr/bin/env bash
# compare_pytorch.py with a program that fails: one line, with the program's reason, and exit code 1.
# usage: failing_comparison.sh VIT_HYBRID. Needs a Python, not its torch package, for the program is measured first.
set -u
program=$1
compare=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/compare_pytorch.py
python=${VIT_HYBRID_TEST_PYTHON:-python3}
command -v "$python" >/dev/null || { echo "[skipped] there is no $python"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# ends_with TEXT OPTIONS...: exit code 1 and one line that begins with the text
ends_with() {
  local text=$1 code
  shift
  "$python" "$compare" --rounds 1 --steps 1 --threads 1 "$@" >"$work/out" 2>"$work/err"
  code=$?
  if [ "$code" -ne 1 ] || [ "$(wc -l <"$work/err")" -ne 1 ] || ! grep -q "^compare_pytorch: $text" "$work/err"; then
    failures=$((failures + 1))
    echo "FAILED: exit code $code instead of 1, or not one line with '$text': $*"
    head -n 20 "$work/err"
  fi
}

printf '#!/bin/sh\necho "a reason" >&2\nexit 3\n' >"$work/fails"
printf '#!/bin/sh\nkill -SEGV $$\n' >"$work/crashes"
chmod +x "$work/fails" "$work/crashes"
ends_with "vit_hybrid ended with exit code 64: vit_hybrid: .*no-such-option" --program "$program" -- --no-such-option
ends_with "vit_hybrid ended with exit code 64: vit_hybrid: .*--pin-memory on page-locks" --program "$program" -- \
  --pin-memory on
ends_with "vit_hybrid ended with exit code 3: a reason" --program "$work/fails" --device cuda
ends_with "vit_hybrid ended with signal 11: it said nothing" --program "$work/crashes"
ends_with "vit_hybrid cannot be started: No such file or directory: $work/none" --program "$work/none"

echo "$failures failures"
[ "$failures" -eq 0 ]
