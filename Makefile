# Everything runs in .venv, made from $(PYTHON) with the versions of constraints.txt. Only the first call installs. By
# path (compat) rather than by an import finder: a script beside the clone would take its folder for the package.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
EXTRAS ?= torch,paddle,openvino,dev
ARGS ?=
VENV := .venv
RUN := $(VENV)/bin/python
comma := ,
INSTALLED := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
DEMO_CACHE := out/demo-cache
EXAMPLES := sentence_embedding text_generation transformer_blocks reference_example
ONCE := train_save_finetune saved_methods tensorrt_layer image_search

.PHONY: help install demo test test-gpu test-tensorrt check bench bench-gpu bench-tensorrt docs clean
.NOTPARALLEL:

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv and install the library in it, with what the demo and the tests need

# One stamp for each set of extras that was installed; they share the environment.
$(VENV)/.installed-%: setup.py pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("$(PYTHON) is Python %d.%d, and 3.10 or later is needed: make PYTHON=..." % sys.version_info[:2] if sys.version_info < (3, 10) else 0)'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --progress-bar off -c constraints.txt -e '.[$(subst -,$(comma),$*)]' --config-settings editable_mode=compat
	@touch $@

demo: $(INSTALLED) ## run the examples from an empty cache, most of them twice: the second run shows what the disk gave
	@rm -rf $(DEMO_CACHE)
	@set -e; for example in $(EXAMPLES); do \
		for run in first second; do \
			printf '\n== examples/%s.py, %s run\n' $$example $$run; \
			HYBRID_INFER_CACHE_DIR=$(DEMO_CACHE) $(RUN) examples/$$example.py; \
		done; \
	done
	@set -e; for example in $(ONCE); do \
		printf '\n== examples/%s.py\n' $$example; \
		HYBRID_INFER_CACHE_DIR=$(DEMO_CACHE) $(RUN) examples/$$example.py; \
	done

test: $(INSTALLED) ## run every test, a file in one of several processes; ARGS="..." is handed to pytest
	@mkdir -p out
	$(RUN) -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile --junitxml=out/junit.xml $(ARGS)

test-gpu: $(INSTALLED) ## run the tests that need an NVIDIA GPU; each is skipped, with the reason, where there is none
	$(RUN) -m pytest tests/gpu $(ARGS)

test-tensorrt: $(INSTALLED) ## run the tests of TensorRT; those that need the real one are skipped, with the reason, where it is not
	$(RUN) -m pytest tests/tensorrt_tests $(ARGS)

check: $(INSTALLED) ## ruff and mypy
	$(RUN) -m ruff check
	$(RUN) -m mypy

bench: $(INSTALLED) ## run the benchmarks; tables here, JSON in out/benchmarks
	$(RUN) -m benchmarks $(ARGS)

bench-gpu: $(INSTALLED) ## measure on an NVIDIA GPU; device, driver and versions first, JSON in out/benchmarks
	$(RUN) -m benchmarks.gpu $(ARGS)

bench-tensorrt: $(INSTALLED) ## measure TensorRT; says why it does not where it is not there, JSON in out/benchmarks
	$(RUN) -m benchmarks.tensorrt $(ARGS)

docs: $(VENV)/.installed-docs ## build the documentation into site/, with warnings as errors; needs no framework
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --strict
	@printf 'open site/index.html\n'

clean: ## remove .venv and everything that was built or measured
	rm -rf $(VENV) out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
