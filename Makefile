# make setup   .venv with everything      make demo   policies compared on a real server
# make test    all checks and tests       make lint   the checks alone
# make clients build/clients-venv with the agent frameworks of evals/clients
# make mutants changed formulas that no test notices (an hour; ARGS="radix_policy.passage.*")
# make notebooks   evals/notebooks anew with outputs; NOTEBOOK_SIZE=medium for minutes, not hours
VENV ?= .venv
OUT ?= build/demo
POLICIES ?= lru,scout
NOTEBOOK_SIZE ?= full
ARGS ?=
export VENV

.PHONY: setup demo clients test lint mutants notebooks clean

setup:
	@launch/cpu/setup.sh

demo: setup
	$(VENV)/bin/python -m evals.demo --out $(OUT) --policies $(POLICIES) $(ARGS)

# An environment of its own: the frameworks want a newer openai than SGLang.
clients: build/clients-venv/.done

build/clients-venv/.done: pyproject.toml | setup
	$(VENV)/bin/python -m venv --clear build/clients-venv
	build/clients-venv/bin/python -m pip install --quiet --disable-pip-version-check '.[clients]'
	touch $@

# Two at a time: real servers leave a core idle for most of their tests.
test: lint
	@mkdir -p build; \
	$(VENV)/bin/python -m pytest tests/server $(ARGS) > build/server-tests.log 2>&1 & \
	$(VENV)/bin/python -m pytest --ignore tests/server $(ARGS); rest=$$?; \
	wait $$!; servers=$$?; cat build/server-tests.log; exit $$((rest + servers))

lint: setup
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

mutants: setup
	$(VENV)/bin/python -m pip install --quiet "mutmut>=3.8,<4"
	$(VENV)/bin/python -m mutmut run $(ARGS)
	$(VENV)/bin/python -m mutmut results

# One after the other, on one core each.
notebooks: setup
	$(VENV)/bin/python -m pip install --quiet -e '.[notebooks]'
	for notebook in evals/notebooks/*.py; do \
	  NOTEBOOK_SIZE=$(NOTEBOOK_SIZE) PYTHONPATH=$(CURDIR) OMP_NUM_THREADS=1 \
	  $(VENV)/bin/python -m evals.notebook $$notebook || exit 1; done

clean:
	rm -rf build mutants .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
