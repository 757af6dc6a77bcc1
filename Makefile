# The commands of this project. `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FRAMEWORKS := .venv-frameworks
DOCS := .venv-docs
REPORT ?= demo-report.html
DEMO_FLAGS ?=
SEARCH_TIMES ?= 10
HOURS ?= 2
# Hundreds of processes of the tests import the same modules; where it is set, each of them would compile them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test unit search bench replicate which-policy validate accept lock generate lint format clean cluster cluster-down \
	record real-runs real-sweeps release install-check test-long test-shares test-cluster test-chart test-faults test-queriers test-frameworks \
	test-pythons bench-cluster hours docs

help:
	@echo "make demo      real trainings, a real Prometheus, real CPU limits; writes $(REPORT)"
	@echo "make test      everything that must hold before a change lands; every stage runs, and the end lists what failed"
	@echo "make unit      its first stages: lint, types, generated files, tests without processes (2 minutes)"
	@echo "make test-shares   the tests that measure CPU shares and rates; on a quiet machine (3 minutes)"
	@echo "make search    the property tests over random examples, ten times as many (SEARCH_TIMES=10); 5 minutes"
	@echo "make bench     speed and memory against their bounds"
	@echo "make replicate the papers' settings in the simulator; writes replication/papers.md (under 20 minutes)"
	@echo "make record    train the papers' models under the exporter and keep their losses for the simulator (ONLY=vae-keras"
	@echo "               for one; Linux; 10 minutes on two quiet cores after the download of make test-frameworks)"
	@echo "make real-runs rounds of the demo until 5 % can be seen, and their table in replication/real-runs.md (quiet machine; 7 minutes"
	@echo "               a pair, which is kept: the next make real-runs goes on)"
	@echo "make real-sweeps   real sweeps, and their table in replication/sweeps.md (30 minutes, quiet machine)"
	@echo "make which-policy   the figures of docs/which-policy.md, which make replicate writes too (2 minutes)"
	@echo "make validate  the demo really run, for the simulator to be compared with (about 8 minutes, quiet machine)"
	@echo "make accept    take today's decisions as the ones that the regression gate expects"
	@echo "make cluster   a real Kubernetes on this machine, without Docker (Linux, root, Go; built once, about 10 minutes)"
	@echo "make cluster-down   end it and leave nothing behind"
	@echo "make test-long  the container image (root, buildah, debootstrap), long series of kills, what only many seeds show; 4 minutes"
	@echo "make test-cluster   the tests on it, or on the cluster of KUBECONFIG=..."
	@echo "make test-faults    a fault at each write of a controller (15 minutes); on the cluster the rest of the faults, and long runs"
	@echo "make test-chart     the Helm chart against the kustomize overlays (Go, kubectl; Helm is built once, about 5 minutes)"
	@echo "make test-queriers  the queries through Thanos, and of metrics that came by OTLP, into a Prometheus 3; freezes by an"
	@echo "               Alertmanager; all are built once from their Go modules (Go; about 7 minutes, then 1)"
	@echo "make test-frameworks  callbacks and checkpoints with the frameworks (downloads 7 GB once, 20 minutes)"
	@echo "make test-pythons   the tests without real processes under each other Python that is installed (about 5 minutes each)"
	@echo "make bench-cluster  speed and memory on it, with 200 simulated nodes and 5,000 pods; what moves cost and bring"
	@echo "make hours     two hours of trainings that come and go on it: memory, stores, passes and the history (HOURS=0.2)"
	@echo "make docs      the documentation as a site, in build/site, with every link and anchor checked (1 minute)"
	@echo "make generate  rewrite what is generated (dashboards, resource definitions, rules, references)"
	@echo "make lock      today's versions of all dependencies, with hashes"
	@echo "make install-check   install the wheels into an empty environment and run them (1 minute)"
	@echo "make release   what a release consists of, into dist/ (docs/releasing.md; as root, with buildah)"

demo: $(VENV)/.done
	$(BIN)/slopewise demo --report "$(REPORT)" $(DEMO_FLAGS)

test: $(VENV)/.done
	bash .ci/test

unit: $(VENV)/.done
	bash .ci/test unit

# Nothing may run beside them. In the order of the files: tests of a module share one real Prometheus.
test-shares: $(VENV)/.done
	$(BIN)/pytest -q -p no:randomly --durations=10 -m alone tests/local tests/controller tests/exporters tests/manifests

# What it finds is printed, and written as a patch that adds it to its test: `git apply` that, then mend what it shows.
search: $(VENV)/.done
	SEARCH_TIMES=$(SEARCH_TIMES) $(BIN)/pytest -q -m hypothesis --hypothesis-profile=search -n logical --maxprocesses 8 \
		--dist load

bench: $(VENV)/.done
	@for bench in benchmarks/bench_*.py; do echo "== $$bench"; $(BIN)/python $$bench || failed=1; done; exit $${failed:-0}

generate: $(VENV)/.done
	$(BIN)/python grafana/generate.py
	$(BIN)/python manifests/rules/generate.py
	$(BIN)/python -m slopewise.crds
	$(BIN)/python docs/generate.py
	$(BIN)/python -m release versions
	$(BIN)/python manifests/chart/generate.py

replicate: $(VENV)/.done
	$(BIN)/python -m replication

record: $(VENV)/.done $(FRAMEWORKS)/.done
	$(BIN)/python -m replication.recording $(ONLY:%=--only %)

real-runs: $(VENV)/.done
	$(BIN)/python -m replication.real_runs

real-sweeps: $(VENV)/.done
	$(BIN)/python -m replication.real_sweeps

which-policy: $(VENV)/.done
	$(BIN)/python -m replication.which_policy

validate: $(VENV)/.done
	$(BIN)/python -m replication.validation

accept: $(VENV)/.done
	$(BIN)/python tests/regression/gate.py --accept

cluster: $(VENV)/.done
	$(BIN)/python -m testbed up

cluster-down: $(VENV)/.done
	$(BIN)/python -m testbed down

test-long: $(VENV)/.done
	$(BIN)/pytest -q --durations=10 -n logical --dist loadfile -m "image or long" tests

# The order of the files stays: each makes the cluster ready for its tests, which takes minutes.
test-cluster: $(VENV)/.done
	$(BIN)/python -m testbed run -- $(BIN)/pytest -q -p no:randomly --durations=10 -m "not faults" tests/cluster

# First those at each write to a small API server: a controller with a fault waits most of its time.
test-faults: $(VENV)/.done
	$(BIN)/pytest -q --durations=10 -n 12 --dist worksteal -m faults tests/controller
	$(BIN)/python -m testbed run -- $(BIN)/pytest -q -p no:randomly --durations=10 -m faults tests/cluster

test-chart: $(VENV)/.done
	$(BIN)/pytest -q --durations=10 tests/chart

test-queriers: $(VENV)/.done
	$(BIN)/pytest -q -p no:randomly --durations=10 tests/queriers
	SLOPEWISE_TEST_QUERIER=thanos $(BIN)/pytest -q -p no:randomly --durations=10 tests/controller/adapters/prometheus/test_reader.py \
		tests/controller/adapters/prometheus/test_container_usage.py

test-frameworks: $(VENV)/.done $(FRAMEWORKS)/.done
	SLOPEWISE_FRAMEWORKS="$(CURDIR)/$(FRAMEWORKS)/bin/python" $(BIN)/pytest -q --durations=10 tests/frameworks
	.ci/frameworks-digest >tests/frameworks/passed.sha256

test-pythons: $(VENV)/.done
	.ci/test-pythons

bench-cluster: $(VENV)/.done
	@for bench in benchmarks/cluster/bench_*.py; do echo "== $$bench"; \
		$(BIN)/python -m testbed run -- $(BIN)/python $$bench || failed=1; done; exit $${failed:-0}

hours: $(VENV)/.done
	$(BIN)/python -m testbed run -- $(BIN)/python benchmarks/cluster/hours.py $(HOURS)

# Strict: a page that is in no menu, and a link or an anchor that leads nowhere, fail it.
docs: $(DOCS)/.done
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet
	@echo "build/site/index.html; to read it: $(DOCS)/bin/mkdocs serve"

install-check: $(VENV)/.done
	$(BIN)/python -m release install-check

release: $(VENV)/.done
	$(BIN)/python -m release build

lint: $(VENV)/.done
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

format: $(VENV)/.done
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

# Hashes instead of addresses: the lock files name no registry. One for the image, one for what builds it, and one
# with everything, which `make` installs.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-package slopewise-exporter --upgrade
lock: $(VENV)/.done
	$(LOCK) pyproject.toml --output-file requirements.lock
	$(LOCK) --group build --output-file requirements-build.lock
	$(LOCK) pyproject.toml --extra demo --extra advise --extra policies --group dev --constraint requirements.lock --output-file requirements-dev.lock
	$(LOCK) --group frameworks --output-file requirements-frameworks.lock
	$(LOCK) docs/requirements.in --output-file requirements-docs.lock

$(VENV)/.done: requirements-dev.lock pyproject.toml exporters/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Slopewise needs Python 3.11 or later; $(PYTHON) is older. Use: make PYTHON=python3.12 ..."; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@# Not compiled: most modules are imported by nothing here, and Python compiles the others when it imports them.
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable exporters --editable .
	@touch $@

$(FRAMEWORKS)/.done: requirements-frameworks.lock
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

$(DOCS)/.done: requirements-docs.lock
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-* dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
