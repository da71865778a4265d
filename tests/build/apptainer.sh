#!/usr/bin/env bash
# Does what launch/vit_hybrid.def says in a fresh Debian (debootstrap, chroot): its files, %post, %environment, %test and
# %runscript, and then trains on two ranks.
#
#   apptainer.sh SOURCE_DIR WORK_DIR
set -euo pipefail

source=$1 work=$2
skip() { echo "[skipped] $*"; exit 77; }
fail() { echo "apptainer: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || skip "a chroot needs root"
for command in debootstrap unshare git; do
  command -v "$command" >/dev/null || skip "$command is not installed (launch/install_dependencies --full)"
done

definition=$source/launch/vit_hybrid.def
root=$work/root
section() { awk -v wanted="%$1" '/^%/ { inside = $1 == wanted; next } inside' "$definition"; }
[ "$(grep -E '^(Bootstrap|From):' "$definition" | tr '\n' ' ')" = "Bootstrap: docker From: debian:12 " ] || fail "another base"
[ "$(section files | tr -s ' ')" = " . /opt/vit_hybrid/source" ] || fail "other files"

# The mirror that this machine uses, where it says so.
mirror=$(grep -rhoE 'https?://[^ ]*/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1 | tr -d ' ') || true
rm -rf "$work"
mkdir -p "$work"
debootstrap --variant=minbase bookworm "$root" ${mirror:+"$mirror"} >"$work/debootstrap.log" 2>&1 ||
  skip "debootstrap cannot make a Debian here: $(tail -n 1 "$work/debootstrap.log")"
mkdir -p "$root/opt/vit_hybrid"
git clone -q "$source" "$root/opt/vit_hybrid/source"

in_root() { unshare --mount --pid --fork bash -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' "$root" "$@"; }
for file in /etc/resolv.conf /etc/hosts; do [ ! -e "$file" ] || cp -L "$file" "$root$file"; done
# Certificates of this machine's own, such as a proxy's.
mkdir -p "$root/usr/local/share/ca-certificates"
cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates" 2>/dev/null || true
section post >"$root/post"
in_root sh -e /post >"$work/post.log" 2>&1 || { tail -n 20 "$work/post.log" >&2; fail "%post failed"; }
section environment >"$root/environment"
{ section environment; section test; } >"$root/test"
in_root sh -e /test >"$work/test.log" 2>&1 || { tail -n 20 "$work/test.log" >&2; fail "%test failed"; }
grep -q "built without CUDA" "$work/test.log" || fail "%test says $(cat "$work/test.log")"
{ section environment; section runscript; } >"$root/runscript"
in_root sh -e /runscript --steps 2 --run-dir /tmp/one >"$work/run.log" 2>&1 || { tail -n 20 "$work/run.log" >&2; fail "%runscript failed"; }
in_root env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 sh -e /runscript --dp 2 --steps 2 \
  --run-dir /tmp/two >"$work/two.log" 2>&1 || { tail -n 20 "$work/two.log" >&2; fail "two ranks failed"; }
grep -q "^step 2/2" "$work/two.log" || fail "two ranks did no step"
rm -rf "$root"
echo "apptainer: passed"
