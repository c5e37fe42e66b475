# rlx-edge: `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
PYTEST_WORKERS ?= auto
BENCH_ARGS ?=
SERVE_ARGS ?= --open
.PHONY: help setup web run samples test test-slow test-browser check bless bench bench-gpu docs accept-native accept-devices accept-gpu accept-page accept-offload bench-page screenshots

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,dev,web]'
	@touch $@

setup: $(STAMP) ## create .venv, install everything, fetch the models
	@scripts/install_tools.sh wasm-validate:wabt node:nodejs npm:npm \
		'chromium-headless-shell|chromium|chromium-browser:chromium-headless-shell' \
		'firefox-esr|firefox:firefox-esr' \
		'/usr/share/vulkan/icd.d/lvp_icd*:mesa-vulkan-drivers'
	@[ node_modules/.package-lock.json -nt package-lock.json ] || ! command -v npm >/dev/null || \
		npm ci --no-audit --no-fund --no-update-notifier --loglevel=error
	@$(BIN)/rlx models fetch

web: setup ## build the page that `rlx serve` serves, into build/site
	@$(BIN)/python -m scripts.build_web

run: web ## serve the page with the sample models, print its URL, open a browser
	@$(BIN)/rlx serve $(SERVE_ARGS)

samples: setup ## run the orientation and the digits model on sample inputs
	$(BIN)/python scripts/run_samples.py

test: setup ## run the tests that need no special device and no patience
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal \
		-m 'not gpu and not slow and not browser' $(PYTEST_ARGS)

test-slow: setup ## run the slow tests
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal \
		-m 'slow and not gpu and not browser' $(PYTEST_ARGS)

test-browser: web ## run the tests in Chromium and Firefox
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal \
		-m 'browser and not gpu' tests/browser $(PYTEST_ARGS)

check: $(STAMP) ## format, lint, types, import rules, changelog, reference pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.architecture
	$(BIN)/python scripts/check_changelog.py
	$(BIN)/python -m scripts.build_docs --check
	$(BIN)/python scripts/build_messages.py --check
	@if [ -x node_modules/.bin/tsc ]; then npm run --silent check; \
		else echo "types of JavaScript: not checked, make setup installs the compiler"; fi

bless: $(STAMP) ## rewrite the golden files from what the code prints now
	$(BIN)/python -m pytest --bless $(PYTEST_ARGS)

bench: setup ## measure layers and models against peers, into build/bench
	$(BIN)/python -m bench $(BENCH_ARGS)
	$(BIN)/python -m bench.offload

docs: $(STAMP) ## write the reference pages that follow from the code
	$(BIN)/python -m scripts.build_docs
	$(BIN)/python scripts/build_messages.py

accept-offload: web ## run the acceptance list of offloading, a figure a line
	$(BIN)/python -m scripts.accept_offload

bench-page: web ## measure models and offloading in a page, into build/bench
	$(BIN)/python -m bench.page $(BENCH_ARGS)
	$(BIN)/python -m bench.offload_page

screenshots: web ## write the pictures of the documentation
	$(BIN)/python -m scripts.screenshots

accept-page: web ## run the acceptance list of the page, a figure a line
	$(BIN)/python -m scripts.accept_page

accept-devices: setup ## run the acceptance list of devices as far as it needs no GPU
	$(BIN)/python -m scripts.accept_devices

bench-gpu: $(STAMP) ## measure models and attention on a GPU beside PyTorch, into build/bench
	$(BIN)/python -m bench.gpu $(BENCH_ARGS)

accept-gpu: $(STAMP) ## run the acceptance list of a machine with an NVIDIA GPU (needs CuPy, Vulkan)
	$(BIN)/python -m scripts.accept_gpu

accept-native: setup ## run the acceptance list of the native stage, a figure a line
	$(BIN)/python -m scripts.accept_native
