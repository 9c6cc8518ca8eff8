#!/bin/sh
# What the README calls the main job: two real models on real photos, then one factor wrong, and what it costs.
set -eu
cd "$(dirname "$0")/.."
records=$(mktemp)
trap 'rm -f "$records"' EXIT
swapped_manifest=examples/resnet50-colours-swapped.yml

say() { printf '\n$ mlmodelscope %s\n' "$*"; }
id_of() { python -c 'import json, sys; print(json.load(open(sys.argv[1]))[int(sys.argv[2])]["id"])' "$records" "$1"; }

echo "ResNet50 on ONNX Runtime, MobileNet-v1 on LiteRT, and ResNet50 with red and blue swapped, on 70 real photos."
echo "Their launches are interleaved, so that all three see the same machine."
say evaluate ResNet50 MobileNet-v1 $swapped_manifest --dataset imagenet-photos
mlmodelscope evaluate ResNet50 MobileNet-v1 $swapped_manifest --dataset imagenet-photos --json > "$records"
resnet=$(id_of 0)
mobilenet=$(id_of 1)
swapped=$(id_of 2)

say show "$resnet"
mlmodelscope show "$resnet"
say show "$mobilenet"
mlmodelscope show "$mobilenet"

echo
echo "What do the swapped colours cost?"
say compare "$resnet" "$swapped"
mlmodelscope compare "$resnet" "$swapped"

cat <<TEXT

What to type next (with .venv/bin on your PATH):
  mlmodelscope predict ResNet50 YOUR_PHOTO.jpg                  ask the model about your own picture
  mlmodelscope compare $resnet $mobilenet   two models: more than one factor differs
  mlmodelscope reproduce $resnet               run it again and judge the difference
  mlmodelscope history                                          everything that is stored
  mlmodelscope models list                                      the other models
TEXT
