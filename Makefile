# make demo   JupyterHub with sliced GPUs on this machine, in a browser
# make test   every test
# The rest is for people who work on Gaia; CONTRIBUTING.md tells which is which.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install demo cluster test test-c test-long test-gpu lint bench crd clean

install: ## make .venv with everything in it
	@PYTHON="$(PYTHON)" bash tools/install.sh

demo: install ## start a hub on 127.0.0.1; Ctrl-C ends it
	@exec $(BIN)/gaia demo $(ARGS)

cluster: install ## a shell with a real Kubernetes of NODES nodes on this machine, ended by exit
	@$(BIN)/python -m tests.cluster.shell $(or $(NODES),1)

test: install ## every test, with the seconds of each layer
	@bash tools/test.sh

test-c: install ## the C tests alone, with sanitizers
	@bash tools/test.sh c

test-long: install ## heavy repetition
	@bash tools/test.sh long

test-gpu: install ## smoke test on a real card
	@$(BIN)/python benchmarks/gpu_smoke.py
	@$(BIN)/python benchmarks/gpu_compute.py

lint: install
	@bash tools/test.sh lint

bench: install ## print the tables of benchmarks/
	@bash benchmarks/run.sh

crd: install ## make deploy/crd.yaml from the types of gaia_plugin/kube/gpunode.py
	@$(BIN)/python -m gaia_plugin.kube.crd > deploy/crd.yaml

clean:
	rm -rf build $(VENV)
