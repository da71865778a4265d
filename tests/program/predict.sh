#!/usr/bin/env bash
# What a classifier predicts: files of predictions and confusion are the same on 1 and 4 ranks, what cannot be is refused,
# and launch/predict says of pictures what the evaluation says of the same images.
#
#   predict.sh PROGRAM WORK_DIR SOURCE_DIR LAUNCHER...   (whose last word takes the number of ranks; 4 are used at most)
# launch/predict is skipped, with the reason, where no Python has Pillow and h5py.
set -euo pipefail

program=$1 work=$2 source=$3
shift 3
launcher=("$@")
fail() { echo "predict: $*" >&2; tail -n 5 "$work"/*.err >&2 || true; exit 1; }

rm -rf "$work"
mkdir -p "$work"
cd "$work"

# on RANKS NAME WORDS...: the program; its output is in NAME.txt and NAME.err
on() {
  local ranks=$1 name=$2
  shift 2
  "${launcher[@]}" "$ranks" "$program" "$@" >"$name.txt" 2>"$name.err"
}
# refused CODE TEXT WORDS...: an evaluation that ends with this exit code and one message that holds the text
refused() {
  local code=0 want=$1 text=$2
  shift 2
  on 2 refused evaluate "$@" || code=$?
  [ "$code" = "$want" ] || fail "exit code $code, not $want: $*"
  [ "$(grep -c '^vit_hybrid: ' refused.err)" = 1 ] || fail "not one message: $*"
  grep -qF -e "$text" refused.err || fail "the message lacks '$text': $*"
}

on 1 data data generate images --out data --train-images 96 --valid-images 30 --size 32 --classes 3 || fail "no images"
on 2 train --task classify --train-data data/train.h5 --valid-data data/valid.h5 --image-size 28 --patch-size 4 \
  --in-channels 3 --num-classes 3 --embed-dim 32 --depth 2 --num-heads 4 --global-batch-size 16 --steps 60 --lr 1e-3 \
  --run-dir run || fail "no training"
checkpoint=run/checkpoints

on 1 one evaluate --checkpoint $checkpoint --data data/valid.h5 --predictions one.csv --confusion one_matrix.csv \
  --out one.json || fail "no predictions on one rank"
on 4 four evaluate --checkpoint $checkpoint --data data/valid.h5 --dp 2 --pp 2 --valid-batch-size 7 --micro-batch-size 2 \
  --predictions four.csv --confusion four_matrix.json || fail "no predictions on four ranks"
on 4 top evaluate --checkpoint $checkpoint --data data/valid.h5 --dp 4 --predictions top.h5 --predictions-top 2 ||
  fail "no predictions in HDF5"
head -n 1 one.csv | grep -qE '^sample,class,[a-z ]+,[a-z ]+,[a-z ]+$' || fail "the columns are not named: $(head -n 1 one.csv)"
[ "$(wc -l <one.csv)" = 31 ] || fail "not one line a sample"
paste -d, one.csv four.csv | awk -F, '
  NR == 1 { if ($1 FS $3 FS $4 FS $5 != $6 FS $8 FS $9 FS $10) { print "other columns"; exit 1 }; next }
  {
    if ($1 != NR - 2 || $1 != $6 || $2 != $7) { print "line " NR ": " $0; exit 1 }
    if (($3 + $4 + $5 - 1) ^ 2 > 1e-10) { print "line " NR " does not add up: " $0; exit 1 }
    for (i = 3; i <= 5; ++i) if (($i - $(i + 5)) ^ 2 > 1e-10) { print "line " NR ": " $0; exit 1 }
  }' || fail "one and four ranks predict otherwise"
awk -F, 'NR > 1 { for (i = 2; i <= NF; ++i) { n += $i; if (i == NR) right += $i } } END { print n, right }' one_matrix.csv >counts
read -r all right <counts
[ "$all" = 30 ] || fail "the confusion matrix counts $all of 30 samples"
accuracy=$(sed -n 's/^top-1 \([0-9.]*\) %.*/\1/p' one.txt)
awk -v r="$right" -v a="$accuracy" 'BEGIN { exit !(100 * r / 30 - a < 0.01 && a - 100 * r / 30 < 0.01) }' ||
  fail "the matrix has $right right, top-1 is $accuracy %"
for name in one four; do
  grep -q '^samples of a class (row) that were taken for a class (column):$' $name.txt || fail "$name prints no matrix"
  # A row has the counts of the file.
  row=$(sed -n 2p one_matrix.csv | cut -d, -f 2- | tr ',' ' ')
  class=$(sed -n 2p one_matrix.csv | cut -d, -f 1)
  [ "$(grep -E "^  $class( +[0-9]+){3}$" $name.txt | sed "s/^  $class *//" | tr -s ' ')" = "$row" ] || fail "$name prints another row"
done
grep -q '"matrix": \[' four_matrix.json || fail "no matrix in JSON"
[ "$(head -c 4 top.h5 | tail -c 3)" = HDF ] || fail "top.h5 is no HDF5 file"

refused 73 "'one.csv' is there already" --checkpoint $checkpoint --data data/valid.h5 --predictions one.csv
refused 73 "the folder 'nowhere' does not exist" --checkpoint $checkpoint --data data/valid.h5 --predictions nowhere/p.h5
refused 64 "allowed: a name that ends with .csv or .h5" --checkpoint $checkpoint --data data/valid.h5 --predictions p.txt
refused 64 "allowed: a name that ends with .csv or .json" --checkpoint $checkpoint --data data/valid.h5 --confusion c.h5
refused 64 "--predictions and --confusion are both './p.csv'" --checkpoint $checkpoint --data data/valid.h5 --predictions p.csv \
  --confusion ./p.csv
mkdir -p folder.json
refused 73 "is there and is no regular file" --checkpoint $checkpoint --data data/valid.h5 --overwrite --out folder.json
refused 73 "File name too long" --checkpoint $checkpoint --data data/valid.h5 --out "$(printf 'x%.0s' {1..300}).json"
refused 64 "which is what is read" --checkpoint $checkpoint --data data/valid.h5 --overwrite --predictions data/../data/valid.h5
refused 64 "--predictions-top has no effect without" --checkpoint $checkpoint --data data/valid.h5 --predictions-top 2
on 1 weather --task forecast --data builtin --image-size 16x32 --patch-size 4 --in-channels 4 --depth 1 --embed-dim 32 \
  --num-heads 4 --generated-samples 8 --generated-valid-samples 0 \
  --global-batch-size 4 --steps 1 --run-dir weather || fail "no forecaster"
on 1 fields data generate --out fields --train-years 1 --valid-years 0 --steps-per-year 4 --channels 4 --height 16 --width 32 || fail "no fields"
refused 64 "would be one of the data's files" --checkpoint weather/checkpoints --data fields/train --stats fields/stats --lead-steps 1 --out fields/train/new.nc
refused 64 "the model is no classifier" --checkpoint weather/checkpoints --data fields/train --stats fields/stats --predictions p.csv
[ -z "$(ls -- *.part p.* 2>/dev/null)" ] || fail "refused predictions left files"

# Pictures.
for python in "${VIT_HYBRID_TEST_PYTHON:-python3}" /usr/bin/python3; do
  ! "$python" -c 'import h5py, PIL, numpy' 2>/dev/null || break
done
if ! "$python" -c 'import h5py, PIL, numpy' 2>/dev/null; then
  code=0
  "$source/launch/predict" --checkpoint $checkpoint x.png 2>missing.err || code=$?
  if [ $code = 66 ] && grep -q '; install what it needs: apt-get install .*, or pip install ' missing.err; then
    echo "predict: passed, but for launch/predict: [skipped] $python has no h5py and Pillow"
    exit 0
  fi
  fail "launch/predict without its packages ends with $code: $(cat missing.err)"
fi
"$python" - <<'PYTHON' || fail "no pictures"
import h5py, PIL.Image
with h5py.File("data/valid.h5") as file:
    images = file["images"][:6]
for i, image in enumerate(images):
    PIL.Image.fromarray(image).save(f"picture {i}, of the file.png")
PIL.Image.fromarray(images[0]).resize((300, 200)).convert("RGBA").save("wide.png")
PIL.Image.fromarray(images[0]).resize((40, 90)).convert("L").save("tall.jpg")
# Without labels: the same images.
with h5py.File("unlabelled.h5", "w") as file:
    file["images"] = images
PYTHON
VIT_HYBRID=$program "$python" "$source/launch/predict" --checkpoint $checkpoint --top 3 --out pictures.csv picture*.png wide.png \
  tall.jpg >pictures.txt 2>pictures.err || fail "no predictions of pictures"
[ "$(wc -l <pictures.txt)" = 8 ] || fail "not one line a picture"
! grep -q 'name no classes' pictures.err || fail "pictures have no labels that could be of other classes: $(cat pictures.err)"
VIT_HYBRID=$program "$python" "$source/launch/predict" --checkpoint $checkpoint wide.png -- --predictions mine.csv >mine.txt \
  2>mine.err && [ "$(wc -l <mine.txt)" = 1 ] || fail "further options take the predictions away"
on 2 unlabelled evaluate --checkpoint $checkpoint --data unlabelled.h5 --predictions unlabelled.csv --dp 2 || fail "labels are needed"
grep -q '^6 samples, no labels: predictions alone$' unlabelled.txt || fail "figures without labels: $(cat unlabelled.txt)"
refused 64 "--confusion needs labels" --checkpoint $checkpoint --data unlabelled.h5 --predictions p.csv --confusion c.csv
refused 65 "labels" --checkpoint $checkpoint --data unlabelled.h5
"$python" - <<'PYTHON' || fail "pictures are predicted otherwise than the same images"
import csv, sys
def rows(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))
images, pictures, unlabelled = rows("one.csv"), rows("pictures.csv"), rows("unlabelled.csv")
names = images[0][2:]
lines = open("pictures.txt").read().splitlines()
for i in range(6):
    expected = dict(zip(names, map(float, images[i + 1][2:])))
    picture, *pairs = pictures[i + 1]
    assert picture == f"picture {i}, of the file.png", picture
    # A model that does not know its classes' names numbers them.
    found = {names[int(c)] if c.isdigit() else c: float(p) for c, p in zip(pairs[::2], pairs[1::2])}
    assert found.keys() == expected.keys(), (found, expected)
    assert all(abs(found[c] - expected[c]) < 1e-5 for c in names), (picture, found, expected)
    assert all(abs(float(a) - b) < 1e-5 for a, b in zip(unlabelled[i + 1][2:], expected.values())), unlabelled[i + 1]
    best = max(expected, key=expected.get)
    name, printed = lines[i].removeprefix(f"{picture}: ").split(", ")[0].rsplit(" ", 1)
    assert name == pairs[0] and found[best] == max(found.values()), lines[i]
    assert abs(float(printed) - expected[best]) < 1e-4, lines[i]
PYTHON
code=0
VIT_HYBRID=$program "$python" "$source/launch/predict" --checkpoint $checkpoint none.png 2>none.err || code=$?
[ $code = 66 ] && grep -q '^predict: there is no picture none.png' none.err || fail "no word on a picture that is not there"
code=0
VIT_HYBRID=$program "$python" "$source/launch/predict" --checkpoint $checkpoint one.csv 2>bad.err || code=$?
[ $code = 65 ] && grep -q '^predict: one.csv is no picture' bad.err || fail "no word on what is no picture"
code=0
VIT_HYBRID=$program "$python" "$source/launch/predict" --checkpoint data/valid.h5 wide.png 2>bad.err || code=$?
[ $code = 65 ] && grep -q '^predict: data/valid.h5 is no checkpoint' bad.err || fail "no word on what is no checkpoint"
echo "predict: passed"
