# make run    set up (once) and watch an agent work, without an API key
# make test   set up (once) and run all tests
# make check  tests, lint, types, import contract
ROOT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
BIN  := $(ROOT)/.venv/bin

# Most tests wait for other processes, so a few more than there are cores.
JOBS ?= 3

.PHONY: run test check lint lock

run:
	@"$(ROOT)/scripts/setup" requirements-local.lock || "$(ROOT)/scripts/setup" requirements.lock
	@"$(ROOT)/scripts/demo"

test:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	@echo "Running the tests, $(JOBS) files at a time"
	@cd "$(ROOT)" && "$(BIN)/python" -m pytest -n $(JOBS) --dist loadfile $(TESTS)

lint:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	cd "$(ROOT)" && "$(BIN)/ruff" check . && "$(BIN)/ruff" format --check .
	cd "$(ROOT)" && "$(BIN)/mypy"
	cd "$(ROOT)" && "$(BIN)/lint-imports"

check: lint test

# Pin the newest versions that pyproject.toml allows (needs uv and the network).
COMPILE := uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links
lock:
	cd "$(ROOT)" && $(COMPILE) --extra build pyproject.toml -o requirements.lock
	cd "$(ROOT)" && $(COMPILE) --extra build --extra local pyproject.toml -c requirements.lock -o requirements-local.lock
	cd "$(ROOT)" && $(COMPILE) --extra build --extra dev --extra remote --extra images pyproject.toml -c requirements.lock \
	  -o requirements-dev.lock
