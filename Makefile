# make setup   .venv with everything      make demo   policies compared on a real server
# make test    all checks and tests       make lint   the checks alone
VENV ?= .venv
OUT ?= build/demo
POLICIES ?= lru,scout
ARGS ?=
export VENV

.PHONY: setup demo test lint clean

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

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
