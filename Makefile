# Everything a fresh machine needs is Python 3.11 to 3.13 (with its venv module) and make.

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
# Has the CPU build of torch, a tenth of the size; TORCH_INDEX= (empty) takes what the default index offers.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
CHECKED := model solver adapters api dataplane bench
MAKEFLAGS += --no-print-directory

.PHONY: run test bench bench-all bench-timings lint types imports formats venv clean

run: $(STAMP)
	@$(BIN)/phalanx demo

# One file's tests stay in one process, and what starts services runs in one of them (tests/conftest.py).
test: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --cov --cov-report=term

# Every table and plot of docs/benchmarks.md; TRACES names the folder of the public traces (docs/traces.md).
TRACES ?= ../shared/traces
bench: $(STAMP)
	$(BIN)/phalanx-bench standard --traces $(TRACES) --out build/bench

# The long runs of that page as well: some half an hour more on two cores.
bench-all: bench
	$(BIN)/phalanx-bench standard --traces $(TRACES) --out build/bench --only founding-month,philly-week,lingjun-128,lingjun-256

# Results of two commits are compared by pytest-benchmark: add --benchmark-autosave, then pytest-benchmark compare.
bench-timings: $(STAMP)
	$(BIN)/pytest bench/suites --benchmark-only

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy cannot follow the finder of an editable install; it finds the folders as phalanx.* through this link.
types: $(STAMP)
	@mkdir -p build/types && ln -sfn ../.. build/types/phalanx
	$(BIN)/mypy $(addprefix -p phalanx.,$(CHECKED))

imports: $(STAMP)
	$(BIN)/lint-imports

formats: $(STAMP)
	$(BIN)/phalanx schema --out docs/formats

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys, venv, ensurepip; v = sys.version_info; sys.exit(not (3, 11) <= v[:2] <= (3, 13))' || { \
	  echo "Phalanx needs Python 3.11, 3.12 or 3.13 with its venv module; $(PYTHON) is: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (the first time takes a few minutes) ..."
	@$(PIP) -qq --no-deps --retries 1 $(TORCH) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt
	@$(PIP) -q -e ".[ray,train,postgres,dev]" -c constraints.txt
	@touch $@

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
