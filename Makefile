# make setup   .venv with everything      make demo   policies compared on a real server
# make test    all checks and tests       make lint   the checks alone
# make mutants changed formulas that no test notices (an hour; ARGS="radix_policy.passage.*")
VENV ?= .venv
OUT ?= build/demo
POLICIES ?= lru,scout
ARGS ?=
export VENV

.PHONY: setup demo test lint mutants clean

setup:
	@launch/cpu/setup.sh

demo: setup
	$(VENV)/bin/python -m evals.demo --out $(OUT) --policies $(POLICIES) $(ARGS)

test: lint
	$(VENV)/bin/python -m pytest $(ARGS)

lint: setup
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

mutants: setup
	$(VENV)/bin/python -m pip install --quiet "mutmut>=3.8,<4"
	$(VENV)/bin/python -m mutmut run $(ARGS)
	$(VENV)/bin/python -m mutmut results

clean:
	rm -rf build mutants .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
