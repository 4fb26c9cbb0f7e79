# Everything runs from a virtual environment of its own, made on the first call.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test bench docs lint clean

demo: $(READY)
	$(BIN)/dmm demo

test: $(READY)
	$(BIN)/python -m pytest

bench: $(READY)
	$(BIN)/python benchmarks/bench.py

docs: $(READY)
	$(BIN)/mkdocs build --strict

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test,lint,docs]"
	touch $@

clean:
	rm -rf $(VENV) site build dist
