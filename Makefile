# Every target is one call of deploy/dev.py, which needs nothing but Python >= 3.11 and sets the rest up.
# Pass arguments with ARGS: make test ARGS="tests/protocol -x"
PYTHON ?= python3
ARGS ?=

.PHONY: help run test redis page oldest nightly check bench chaos lock

help:   ## list what can be made
	@grep -E '^[a-z]+: *##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+): *## */  make \1\t/'

run:    ## run the main job on a real example
	@$(PYTHON) deploy/dev.py run $(ARGS)

test:   ## run the tests
	@$(PYTHON) deploy/dev.py test $(ARGS)

redis:  ## run each Lua script and each command on Debian's Redis
	@$(PYTHON) deploy/dev.py redis $(ARGS)

page:   ## run the page of a run in Debian's Chromium
	@$(PYTHON) deploy/dev.py page $(ARGS)

oldest: ## run the tests with the oldest libraries that pyproject.toml allows
	@$(PYTHON) deploy/dev.py oldest $(ARGS)

nightly: ## run every test on thousands of examples, then half an hour of chaos on each server
	@$(PYTHON) deploy/dev.py nightly $(ARGS)

check:  ## format, lint, types
	@$(PYTHON) deploy/dev.py check $(ARGS)

bench:  ## measure beside other systems: ARGS="engine --only chain --rounds 3"
	@$(PYTHON) deploy/dev.py bench $(ARGS)

chaos:  ## random faults under a mixed workload, and an audit of what is left: ARGS="--seconds 3600 --seed 7"
	@$(PYTHON) deploy/dev.py chaos $(ARGS)

lock:   ## write the versions, hashes and bill of materials of the image
	@$(PYTHON) deploy/dev.py lock
