# Two commands matter: `make run` and `make test`. Both install what is missing (scripts/bootstrap), build, and do their job.
#   PRESET=release|cpu|cuda      which build (CMakePresets.json)
#   ARGS='...'                   options of `flashmla run`, pytest or the GPU suite
#   CTEST_ARGS='...'             options of ctest

PRESET ?= release
BUILD := build/$(PRESET)
PYTHON := .venv/bin/python
ARGS ?=
CTEST_ARGS ?=

# How Python tests find what was built: the package as it is installed, the program, the build tree.
TEST_ENV := PYTHONPATH=$(CURDIR)/$(BUILD)/python FLASHMLA_PROGRAM=$(CURDIR)/$(BUILD)/bin/flashmla \
            FLASHMLA_BUILD_DIR=$(CURDIR)/$(BUILD) PYTHONDONTWRITEBYTECODE=1

.PHONY: help
help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: bootstrap
bootstrap:
	@scripts/bootstrap

.PHONY: build
build: bootstrap  ## configure and build, tests and Python package included
	@test -e $(BUILD)/build.ninja || cmake --preset $(PRESET) -DFLASHMLA_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON)
	@cmake --build $(BUILD)

.PHONY: run
run: build  ## one decode step of DeepSeek-V3 shape over a ragged batch, checked and measured
	@$(BUILD)/bin/flashmla run $(ARGS)

.PHONY: test
test: build  ## every test that needs neither a GPU nor torch
	@ctest --preset $(PRESET) $(CTEST_ARGS)
	@$(TEST_ENV) $(PYTHON) -m pytest -m "not gpu and not torch and not slow" $(ARGS)

.PHONY: test-package
test-package: build  ## pip install and other tests that build the project once more
	@$(TEST_ENV) $(PYTHON) -m pytest -m slow $(ARGS)

.PHONY: test-torch
test-torch: build  ## tests of the torch interfaces, in .venv-torch (5 GB); a skip is a failure
	@scripts/bootstrap torch
	@$(TEST_ENV) .venv-torch/bin/python scripts/pytest_without_skips.py -m "torch and not gpu" $(ARGS)

.PHONY: test-engines
test-engines: build  ## vLLM's and SGLang's published Python files on this library; downloads 0.9 GB
	@scripts/bootstrap torch
	@.venv-torch/bin/python scripts/fetch_engines build/engines
	@$(TEST_ENV) FLASHMLA_ENGINES=$(CURDIR)/build/engines .venv-torch/bin/python scripts/pytest_without_skips.py tests/engines $(ARGS)

ifneq ($(wildcard tests/gpu/run.py),)
.PHONY: gpu-test
gpu-test: build  ## the GPU suite, on a machine with an H100 or H200
	@$(TEST_ENV) python3 tests/gpu/run.py $(ARGS)
endif

.PHONY: format
format:  ## clang-format every C++ and CUDA file
	@scripts/bootstrap lint
	@tests/lint/format.sh --fix

.PHONY: lint
lint: build  ## formatting, include directions, headers alone, clang-tidy
	@scripts/bootstrap lint
	@tests/lint/format.sh
	@$(PYTHON) tests/lint/include_direction.py
	@$(PYTHON) tests/lint/headers_alone.py
	@$(PYTHON) tests/lint/check_receipt.py
	@scripts/support_matrix --check --program $(BUILD)/bin/flashmla
	@tests/lint/clang_tidy.sh $(BUILD)

.PHONY: planted-faults
planted-faults: build  ## deliberate defects in the CPU backend must turn its tests red
	@tests/planted_faults.sh $(BUILD)

.PHONY: sanitize
sanitize: bootstrap  ## unit and CPU tests under the address, undefined behavior and thread sanitizers
	@cmake --preset asan >/dev/null && cmake --build --preset asan && ctest --preset asan
	@cmake --preset tsan >/dev/null && cmake --build --preset tsan && ctest --preset tsan

.PHONY: clean
clean:  ## remove what was built; .venv stays
	rm -rf build dist
