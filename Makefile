# make run    set up (once) and watch an agent work, without an API key
# make test   set up (once) and run all tests
# make coverage  the same, and which lines of src no test reaches
# make web    format, lint, types and unit tests of the scripts of the web pages (needs node 20 or newer)
# make clients  build the TypeScript client and try it on the real program (needs node 20 or newer)
# make check  tests, lint, types, import contract, and make web
# make docs   make a site of docs/, with search, in site/; a dead link fails
# make pictures  make the pictures of README.md and docs/ again: the real program, a terminal, a browser
# make soak   attack the real process for an hour (SECONDS=600, SEED=…, ONLY=kills,lines); writes into docs/benchmarks.md
# make bench  measure beside pi from npm and write into docs/benchmarks.md; with BASE=<git ref> beside that state of Spindle
# make eval   which tasks get solved, beside other harnesses (EVAL="--easy --base-url URL --model NAME")
# make dist   build the wheel and the source archive in dist/, check them, try the wheel in a fresh environment
# make test-ray, test-harbor  tests with a real Ray, and with a real Harbor (Python 3.12: PYTHON312=…)
ROOT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
BIN  := $(ROOT)/.venv/bin

# Most tests wait for other processes, so there may be more jobs than cores.
JOBS ?= 4
SECONDS ?= 3600

.PHONY: run test coverage test-ray test-harbor web clients check lint lock soak bench eval docs pictures dist

run:
	@"$(ROOT)/scripts/setup" requirements-local.lock || "$(ROOT)/scripts/setup" requirements.lock
	@"$(ROOT)/scripts/demo"

test:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	@echo "Running the tests, $(JOBS) files at a time"
	@cd "$(ROOT)" && "$(BIN)/python" -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(TESTS)

coverage:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	@"$(BIN)/python" -m pip install --quiet --disable-pip-version-check "coverage>=7.10"
	@cd "$(ROOT)" && "$(BIN)/coverage" erase
	@-cd "$(ROOT)" && "$(BIN)/coverage" run -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(TESTS)
	@cd "$(ROOT)" && "$(BIN)/coverage" combine --quiet && "$(BIN)/coverage" report --sort=cover --skip-covered --show-missing

PYTHON312 ?= python3.12
OTHERS := $(ROOT)/.interop

test-ray:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	@[ -x "$(OTHERS)/ray/bin/python" ] || python3 -m venv "$(OTHERS)/ray"
	@"$(OTHERS)/ray/bin/python" -m pip install --quiet --disable-pip-version-check -e "$(ROOT)[ray]"
	@cd "$(ROOT)" && SPINDLE_TEST_RAY="$(OTHERS)/ray/bin/python" "$(BIN)/python" -m pytest -vv tests/apps/batch/test_ray.py

test-harbor:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	@[ -x "$(OTHERS)/harbor/bin/python" ] || "$(PYTHON312)" -m venv "$(OTHERS)/harbor"
	@"$(OTHERS)/harbor/bin/python" -m pip install --quiet --disable-pip-version-check harbor -e "$(ROOT)"
	@cd "$(ROOT)" && SPINDLE_TEST_HARBOR="$(OTHERS)/harbor/bin/python" "$(BIN)/python" -m pytest -vv -k harbor tests/apps/batch/test_harbor.py tests/test_declarations.py

lint:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	cd "$(ROOT)" && "$(BIN)/ruff" check . && "$(BIN)/ruff" format --check .
	cd "$(ROOT)" && "$(BIN)/mypy"
	cd "$(ROOT)" && "$(BIN)/lint-imports"

web:
	@cd "$(ROOT)" && npm ci --silent && npm run --silent check && npm run --silent test

clients:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	@cd "$(ROOT)/clients/typescript" && npm ci --silent --no-fund --no-audit && SPINDLE_COMMAND="$(BIN)/spindle" npm run --silent test

check: lint web clients test

docs:
	@"$(ROOT)/scripts/setup" requirements-docs.lock
	@cd "$(ROOT)" && NO_MKDOCS_2_WARNING=1 "$(BIN)/mkdocs" build && echo "To read it: python3 -m http.server -d site"

pictures:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	@cd "$(ROOT)" && "$(BIN)/python" scripts/pictures.py docs/pictures && "$(BIN)/python" -m benchmarks.plot

soak:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	@cd "$(ROOT)" && "$(BIN)/python" -m tests.soak --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) \
	  $(if $(ONLY),,--report docs/benchmarks.md)

bench:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	@cd "$(ROOT)" && "$(BIN)/python" -m benchmarks $(if $(BASE),--base $(BASE)) $(if $(BASE)$(BENCH),,--report docs/benchmarks.md) $(BENCH)

eval:
	@"$(ROOT)/scripts/setup" requirements-local.lock
	@cd "$(ROOT)" && PATH="$(BIN):$$PATH" "$(BIN)/python" -m evals $(EVAL)

dist:
	@"$(ROOT)/scripts/setup" requirements-dev.lock
	@"$(BIN)/python" "$(ROOT)/scripts/dist"

# Pin the newest versions that pyproject.toml allows (needs uv and the network).
COMPILE := uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links
lock:
	cd "$(ROOT)" && $(COMPILE) --extra build pyproject.toml -o requirements.lock
	cd "$(ROOT)" && $(COMPILE) --extra build --extra postgres pyproject.toml -c requirements.lock -o requirements-postgres.lock
	cd "$(ROOT)" && $(COMPILE) --extra build --extra local pyproject.toml -c requirements.lock -o requirements-local.lock
	cd "$(ROOT)" && $(COMPILE) --extra build --extra dev --extra images pyproject.toml -c requirements.lock -o requirements-dev.lock
	cd "$(ROOT)" && $(COMPILE) --extra build --extra docs pyproject.toml -c requirements-dev.lock -o requirements-docs.lock
