#!/bin/sh
# What the README calls the main job: two real models on real photos, then one factor wrong, and what it costs.
set -eu
cd "$(dirname "$0")/.."
ids=$(mktemp)
trap 'rm -f "$ids"' EXIT

say() { printf '\n$ mlmodelscope %s\n' "$*"; }
id_of() { python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print((r if isinstance(r, dict) else r[int(sys.argv[2])])["id"])' "$ids" "$1"; }

echo "ResNet50 on ONNX Runtime and MobileNet-v1 on LiteRT, on the packaged ImageNet photos"
say evaluate ResNet50 MobileNet-v1 --dataset imagenet-photos
mlmodelscope evaluate ResNet50 MobileNet-v1 --dataset imagenet-photos --json > "$ids"
resnet=$(id_of 0)
mobilenet=$(id_of 1)
say show "$resnet"
mlmodelscope show "$resnet"
say show "$mobilenet"
mlmodelscope show "$mobilenet"

echo
echo "The same ResNet50, but with red and blue swapped (examples/resnet50-colours-swapped.yml)"
say evaluate examples/resnet50-colours-swapped.yml --dataset imagenet-photos
mlmodelscope evaluate examples/resnet50-colours-swapped.yml --dataset imagenet-photos --json > "$ids"
swapped=$(id_of 0)
say compare "$resnet" "$swapped"
mlmodelscope compare "$resnet" "$swapped"

cat <<TEXT

What to type next (put .venv/bin on your PATH, or write .venv/bin/mlmodelscope):
  mlmodelscope predict ResNet50 YOUR_PHOTO.jpg      ask the model about your own picture
  mlmodelscope compare $resnet $mobilenet
  mlmodelscope reproduce $resnet      run it again and judge the difference
  mlmodelscope history                              everything that is stored
  mlmodelscope models list                          the other models
TEXT
