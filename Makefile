.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
PROTOS := $(shell find proto -name '*.proto')
SERVICE_PROTOS := $(shell grep -l '^service ' $(PROTOS))

.PHONY: help
help: ## List what can be done
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-13s %s\n", $$1, $$2}'

.PHONY: setup
setup: .venv/.installed ## Create .venv with the locked dependencies

.venv/.installed: requirements.lock pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip sync --quiet requirements.lock
	$(BIN)/uv pip install --quiet --no-deps --editable .
	touch $@

.PHONY: demo
demo: setup ## Start everything, upload examples/, ask questions, check the answers, stop
	$(BIN)/python -m deploy.embedded.demo

.PHONY: up
up: setup ## Run the whole stack on this machine until Ctrl-C; data stays in .kbmesh/
	$(BIN)/python -m deploy.embedded up

.PHONY: down
down: setup ## Stop the stack that make up started in .kbmesh/
	$(BIN)/python -m deploy.embedded down

.PHONY: bench
bench: setup ## Measure encoding, the consumer, queries and the rest; JSON lines
	$(BIN)/python -m deploy.embedded.benchmarks

.PHONY: bench-search
bench-search: setup ## Measure search over 10,000 and 100,000 chunks: time, recall, sizes; JSON lines
	$(BIN)/python -m deploy.embedded.benchmarks search

.PHONY: eval
eval: setup ## Measure how well search finds, also on collections under KBMESH_EVAL_DIR; JSON lines
	$(BIN)/python -m deploy.embedded.evaluation

.PHONY: test
test: setup ## Run the tests; they start the database and the broker they need
	$(BIN)/pytest --numprocesses 2 --dist worksteal

.PHONY: lint
lint: setup ## Formatter, linter, types, import rules, contracts
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint

.PHONY: format
format: setup ## Format the code and mend what the linter can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: proto
proto: setup ## Generate kbmesh/<area>/v1 from proto/
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python -m grpc_tools.protoc -I proto \
		--python_out=. --mypy_out=quiet:. $(PROTOS)
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python -m grpc_tools.protoc -I proto \
		--grpc_python_out=. --mypy_grpc_out=quiet:. $(SERVICE_PROTOS)

.PHONY: migrate
migrate: setup ## Bring the database at KBMESH_POSTGRES_DSN to the newest schema
	$(BIN)/python -m kbmesh.postgres.migrate

.PHONY: schema
schema: setup ## Write kbmesh/postgres/schema.sql from the migrations
	$(BIN)/python -m deploy.embedded.schema

.PHONY: lock
lock: setup ## Compile requirements.lock from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --group dev \
		--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		pyproject.toml --output-file requirements.lock

.PHONY: corpus
corpus: setup ## Write the small nasty files of the tests, tests/data/hostile
	$(BIN)/python -m tests.data.make

.PHONY: check
check: lint test ## Everything that must be green before a change lands
