# make run    set up (once) and watch an agent work, without an API key
# make test   set up (once) and run all tests
# make check  tests, lint, types, import contract
ROOT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
BIN  := $(ROOT)/.venv/bin

.PHONY: run test check lint lock

run:
	@"$(ROOT)/scripts/setup" requirements.lock
	@"$(ROOT)/scripts/demo"

test:
	@"$(ROOT)/scripts/setup" requirements.lock requirements-dev.lock
	@echo "Running the tests"
	@cd "$(ROOT)" && "$(BIN)/python" -m pytest $(TESTS)

lint:
	@"$(ROOT)/scripts/setup" requirements.lock requirements-dev.lock
	cd "$(ROOT)" && "$(BIN)/ruff" check . && "$(BIN)/ruff" format --check .
	cd "$(ROOT)" && "$(BIN)/mypy"
	cd "$(ROOT)" && "$(BIN)/lint-imports"

check: lint test

# Pin the newest versions that pyproject.toml allows (needs uv and the network).
lock:
	cd "$(ROOT)" && uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
	  --extra local --extra build pyproject.toml -o requirements.lock
	cd "$(ROOT)" && uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
	  --extra dev --extra remote --extra images pyproject.toml -c requirements.lock -o requirements-dev.lock
