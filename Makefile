.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON := .venv/bin/python
# Bytecode is written once, not compiled anew by each of the hundreds of processes that the tests start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show these lines
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

# --- Run ---------------------------------------------------------------------
.PHONY: up demo down status doctor doctor-list report accept soak key account
up: setup ## Start the stack; prints the address once a real answer has come back
	@$(PYTHON) -m ops up
demo: setup ## The same with the bundled demo model: no GPU, no download
	@$(PYTHON) -m ops up --demo
down: setup ## Stop everything (weights and caches stay)
	@$(PYTHON) -m ops down
status: setup ## What runs, how far it is, tokens/s, the card (WATCH=1 goes on, JSON=1 for scripts)
	@$(PYTHON) -m ops status $(if $(WATCH),--watch) $(if $(JSON),--json)
doctor: setup ## What is wrong, why, and what cures it (JSON=1 for scripts)
	@$(PYTHON) -m ops doctor $(if $(JSON),--json)
doctor-list: setup ## The known signs of trouble, one a line
	@$(PYTHON) -m ops doctor --list
report: setup ## Pack logs and states for somebody else to read, without secrets and prompts
	@$(PYTHON) -m ops report
accept: setup ## The acceptance test, on the running stack (RECOVERY=1 kills the engine too; JSON=1 for scripts)
	@$(PYTHON) -m ops accept $(if $(RECOVERY),--recovery) $(if $(JSON),--json)
HOURS ?= 1
STREAMS ?= 4
RATE ?= 60
soak: setup ## A bounded load: make soak HOURS=72 [STREAMS=4] [RATE=60 a minute]; Ctrl-C ends it in order
	@$(PYTHON) -m ops soak --hours $(HOURS) --streams $(STREAMS) --per-minute $(RATE) $(if $(JSON),--json)

TIER ?= default
key: setup ## Make an API key: make key NAME=alice [TIER=team]; shown once, only its hash is kept
	@$(PYTHON) -m ops key "$(NAME)" --tier "$(TIER)"
account: setup ## Let a person log in to the chat page: make account NAME=alice; asks for the password, keeps its hash
	@$(PYTHON) -m ops account "$(NAME)"

# --- Develop -----------------------------------------------------------------
.PHONY: setup setup-node setup-tests test test-fast test-process test-browser test-compose faults fuzz check bench bench-peers format lock train-demo
setup: ## Make .venv (quick when nothing changed)
	@ops/setup.sh
setup-node:
	@ops/setup.sh node
setup-tests:
	@ops/setup.sh tests
SLOW := engine or edge or stack or browser or compose or state or monitoring
SIDE_BY_SIDE := -n auto --maxprocesses 4 --dist worksteal
test: setup-tests check test-fast test-process ## Everything: checks, fast tests, processes, real engine, browser, containers
	$(PYTHON) -m pytest -m "$(SLOW)"
test-fast: setup ## The tests that start no process
	$(PYTHON) -m pytest -m "not (process or $(SLOW))" $(SIDE_BY_SIDE)
test-process: setup-node ## The tests that start processes, but no engine, no browser and no Docker
	$(PYTHON) -m pytest -m "process and not ($(SLOW))" $(SIDE_BY_SIDE)
test-browser: setup-tests ## The chat page in a real browser
	$(PYTHON) -m pytest -m browser
test-compose: setup-tests ## The containers, built and started
	$(PYTHON) -m pytest -m compose
faults: setup ## Every fault of engine and client once, and what came of it (docs/faults.md)
	@$(PYTHON) -m tests.fakes.lab native
FUZZ_SECONDS ?= 60
fuzz: setup ## Look long for inputs that break the gateway (some minutes); new ones go to .run/fuzz
	$(PYTHON) -m pytest tests/fuzz --hypothesis-profile fuzz
	for target in stream policy addresses; do mkdir -p .run/fuzz/$$target; \
	  .venv/bin/uv run --quiet --no-project --python $(PYTHON) --with-requirements tests/fuzz/requirements.txt \
	    python -m tests.fuzz.guided $$target .run/fuzz/$$target tests/fuzz/corpus/$$target \
	    -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=.run/fuzz/ || exit 1; done
check: setup ## Lint, types, import contracts
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
bench: setup ## What the gateway costs: measure, draw, renew bench/README.md (3 minutes, on an idle machine)
	$(PYTHON) -m bench.gateway.run
	.venv/bin/uv run --quiet --no-project --python $(PYTHON) --with-requirements bench/requirements.txt python -m bench.gateway.plot
	$(PYTHON) -m bench.gateway.report
bench-peers: setup ## The gateway beside LiteLLM, the Rust routers and others (20 minutes, on an idle machine)
	$(PYTHON) -m bench.peers.run
	.venv/bin/uv run --quiet --no-project --python $(PYTHON) --with-requirements bench/requirements.txt python -m bench.peers.plot
	$(PYTHON) -m bench.peers.report
format: setup ## Put the code in form
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

# Pins and hashes, never an index's address. Run after a change of dependencies. The engine's part needs an index that
# has torch's CPU build: UV_TORCH_BACKEND=cpu names one, UV_FIND_LINKS a folder.
COMPILE := .venv/bin/uv pip compile --quiet --generate-hashes --no-annotate --no-header
lock: setup ## Resolve the dependencies anew
	$(COMPILE) --universal --python-version 3.11 --group ops --group dev services/gateway/pyproject.toml services/chat-ui/pyproject.toml -o requirements-dev.txt
	for service in gateway chat-ui; do \
	  $(COMPILE) --universal --python-version 3.11 -c <(grep -oE '^[A-Za-z0-9._-]+==[^ ;\\]+' requirements-dev.txt) \
	    services/$$service/pyproject.toml -o services/$$service/requirements.txt || exit 1; done
	for file in bench/requirements tests/fuzz/requirements tests/clients/node/requirements $(basename $(wildcard bench/peers/requirements/*.in)); do \
	  $(COMPILE) --universal --python-version 3.11 $$file.in -o $$file.txt || exit 1; done
	set -o pipefail; cd services/vllm && ../../$(COMPILE) --python-version 3.11 --no-emit-find-links --override overrides-cpu.txt requirements-cpu.in \
	  | awk '/^[^ ]/ {skip = /^torch==/} !skip' >requirements-cpu.new && mv requirements-cpu.new requirements-cpu.txt

# Needs a GPU, and a Python that has torch and transformers for it: make train-demo TRAIN_PYTHON=...
TRAIN_PYTHON ?= python3
train-demo: ## Train the demo model from scratch, on a GPU (6 minutes on an H200)
	$(TRAIN_PYTHON) models/demo/train.py
