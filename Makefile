# Everything from a fresh clone with nothing but Python (3.11 or newer) and make. `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?= -n 4 --dist worksteal

DEMO_API := 127.0.0.1:9000
PROXY := 127.0.0.1:8080

LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' --quiet

.DEFAULT_GOAL := help
.PHONY: help setup run demo test wire lint format types check docs chaos kill-matrix failover deploy-tools deploy-check lock bench bench-growth bench-profile bench-publish soak slow bench-store bench-memory clean

help:
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

setup: $(STAMP) ## install what is needed into .venv, once

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: $(STAMP) ## a sample upstream and the proxy in front of it, on the embedded store; Ctrl-C stops both
	@echo 'Send this twice; the second answer is a replay, and the upstream has seen one charge:'
	@echo "  curl -i http://$(PROXY)/charges -H 'Idempotency-Key: order-17' -H 'Content-Type: application/json' -d '{\"amount\": 4200}'"
	@# The shell outlives Ctrl-C, so that both programs can finish their work; a program in the background does not hear Ctrl-C.
	@trap : INT TERM; \
	$(BIN)/idemproxy demo-api --listen $(DEMO_API) --ledger idemproxy-demo.jsonl & api=$$!; \
	trap 'kill $$api 2>/dev/null; wait $$api' EXIT; \
	sleep 1; kill -0 $$api 2>/dev/null || exit 1; \
	$(BIN)/idemproxy run --listen $(PROXY) --upstream http://$(DEMO_API)

demo: $(STAMP) ## an agent that is killed right after it has charged a card: without the proxy, and with it
	@$(BIN)/idemproxy demo

test: $(STAMP) ## all tests; they bring their own servers and need no root
	$(BIN)/pytest $(PYTEST_ARGS)

wire: $(STAMP) ## the wire tests over plain sockets and TLS on both sides, on both event loops: all eight combinations, and a table
	$(BIN)/python -m tests.wire.matrix $(PYTEST_ARGS)

lint: $(STAMP) ## style, and the layout of the source
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(STAMP) ## lay the source out, and mend what can be mended safely
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

check: lint types test ## all of these

docs: $(STAMP) ## write the generated parts of docs/ anew from the program
	$(BIN)/python -m docs.generate

chaos: $(STAMP) ## the fault suite in its long form: ten minutes of kill -9; SEED=N repeats one, STORES="sentinel cluster"
	$(BIN)/python -m tests.process.chaos $(if $(SEED),--seed $(SEED)) $(if $(STORES),--stores $(STORES))

kill-matrix: $(STAMP) ## agent, proxy or both, killed before, during and after each step of a trip, and a table; VICTIMS="agent"
	$(BIN)/python -m tests.agents.kill_matrix $(if $(VICTIMS),--victims $(VICTIMS))

failover: $(STAMP) ## what failovers of Redis lose, with and without confirmation by a replica: ten minutes, and a table
	$(BIN)/python -m tests.process.chaos.failover $(if $(SEED),--seed $(SEED))

deploy-tools: $(STAMP) ## fetch helm into build/tools, for the tests of the chart (x86-64 Linux; else put one in PATH)
	$(BIN)/python -m tests.deploy.tools

deploy-check: $(STAMP) ## build the image, and run it, the Pods and the compose file; needs root, podman, buildah, debootstrap
	$(BIN)/pytest tests/deploy/check_containers.py

lock: $(STAMP) ## write requirements/*.txt anew from pyproject.toml, keeping versions that still fit
	$(LOCK) pyproject.toml --extra speed --output-file requirements/runtime.txt
	$(LOCK) pyproject.toml --extra speed --group dev --constraint requirements/runtime.txt --output-file requirements/dev.txt
	$(LOCK) --group build --constraint requirements/dev.txt --output-file requirements/build.txt
	$(LOCK) --no-deps --group helm --output-file requirements/helm.txt

bench: $(STAMP) ## requests per second and added latency, beside what people use today, a table and a picture; QUICK=1 for a short form
	$(BIN)/python -m bench $(if $(QUICK),--quick)

bench-growth: $(STAMP) ## how cost grows with bodies, routes, stored records and connections: four minutes, a table and a picture
	$(BIN)/python -m bench.growth

bench-profile: $(STAMP) ## where the time of a request goes, by room of the house; under load too where `perf` is
	$(BIN)/python -m bench.profile

bench-publish: $(STAMP) ## put the last results of bench, bench-growth and bench-profile into docs/explanation/performance.md
	mkdir -p docs/explanation/measured
	cp $(wildcard $(foreach name,latest growth profile,bench/results/$(name).json bench/results/$(name).svg)) docs/explanation/measured/
	$(BIN)/python -m docs.generate

soak: $(STAMP) ## whether anything grows in ten minutes of mixed traffic, printed as a series; MINUTES=1, STORE=redis, TLS=1
	$(BIN)/python -m bench.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(STORE),--store $(STORE)) $(if $(TLS),--tls)

slow: $(STAMP) ## what 500 connections that send a byte a second cost all others
	$(BIN)/python -m bench.slow_senders

bench-store: $(STAMP) ## store operations per second, beside plain redis-py; QUICK=1 for a short form
	$(BIN)/python -m bench.store_operations $(if $(QUICK),--quick)

bench-memory: $(STAMP) ## what a record costs Redis in memory, with and without compression
	$(BIN)/python -m bench.memory_per_record

clean: ## remove what these targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist idemproxy.db* idemproxy-spool idemproxy-demo.jsonl
	find idemproxy tests bench docs examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
