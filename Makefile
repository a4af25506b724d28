# Every target makes the one environment it needs, from a lock, once. PYTHON chooses the interpreter.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
USE := $(VENV)/.installed-use
DEV := $(VENV)/.installed-dev

.PHONY: demo test check bench docs clean

demo: $(USE)
	$(BIN)/tpugraphs tune mobilenetv2

test: $(DEV)
	$(BIN)/python -m pytest -n 2 --dist loadgroup

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

bench: $(DEV)
	$(BIN)/python bench/data.py --save
	$(BIN)/python bench/tuning.py --save
	for section in repeats agreement kills memory gains share; do $(BIN)/python bench/measure.py $$section --save; done
	$(BIN)/python bench/forms.py --save

docs: $(DEV)
	$(BIN)/python -m pytest -q tests/test_docs.py

clean:
	rm -rf $(VENV) .ruff_cache .hypothesis .import_linter_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(USE): requirements.lock pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): requirements-dev.lock requirements.lock pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@ $(USE)
