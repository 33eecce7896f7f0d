# Every target makes what it needs by itself: a virtual environment in .venv, with the versions that are pinned in
# hack/requirements.txt. Nothing outside of the checkout changes.

PYTHON ?= python3
# LIGHT=1: `make run` takes the example that needs no PyTorch.
LIGHT ?=
# An index from which `make run` may take PyTorch instead of PyPI, for instance PyTorch's own index of CPU builds.
TORCH_INDEX_URL ?=
# More arguments for pytest or the benchmark: make test ARGS="-k quantities"
ARGS ?=
# How many tests run at once. Those of the night wait most of the time, for processes that start and for clocks.
WORKERS ?= auto
NIGHTLY_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * os.cpu_count())')
# How long `make soak` makes trouble.
MINUTES ?= 20
# The cluster of `make e2e`: only one that is named on the command line, never that of the shell.
E2E_KUBECONFIG := $(if $(filter command line,$(origin KUBECONFIG)),$(abspath $(KUBECONFIG)))
# What `make test-lowest` runs: where each dependency is met, and whole managers, in which all of them meet.
#   aiohttp, cachetools, tenacity     server, statusserver, webhooks, kube/rest, tracing
#   kubernetes-asyncio, cryptography  kube/auth, certificates
#   httptools                         kube/rest
#   orjson, pyyaml, pydantic          kube/rest, configuration, runtime
#   prometheus-client, structlog      metrics, test_log_config
#   rich, pathspec                    follow/test_live_reporter, script/test_files
#   cel, jsonpatch, jsonpointer       schema/cel, test_jsonpatch
LOWEST_TESTS := $(addprefix tests/controller/,server statusserver/test_server.py \
	webhooks/test_server.py $(addprefix kube/rest/test_,client.py retry_and_limits.py watch.py) \
	kube/auth certificates/test_rotator.py certificates/test_integration.py configuration/test_loading.py \
	configuration/test_overrides.py cli/follow/test_live_reporter.py cli/run/script/test_files.py \
	manager/test_metrics.py tracing test_log_config.py) \
	$(addprefix tests/runtime/,api/test_decoding.py test_yamltext.py) tests/metrics/test_families.py \
	tests/metrics/test_series.py $(addprefix tests/devcluster/apiserver/,schema/cel/test_library.py test_jsonpatch.py)
# What `make deploy-smoke` runs, on one cluster: two replicas from the manifests, webhooks that the API server calls
# through the Service, and a TrainJob that trains.
DEPLOYMENT := tests/deploy/test_deployment.py
DEPLOY_SMOKE := $(DEPLOYMENT)::test_the_replicas_are_what_the_manifests_say \
	$(DEPLOYMENT)::test_webhooks_are_called_through_the_service \
	'$(DEPLOYMENT)::test_a_trainjob_of_each_kind_completes[numpy-digits]'
# UPGRADE=1: `make lock` moves every pin to the newest version.
UPGRADE ?=

VENV := .venv
LOWEST := .venv-lowest
HEAVY := .venv-heavy
MPI := .cache/mpi/mpich/.ready .cache/mpi/openmpi/.ready
BIN := $(VENV)/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-input --no-build-isolation
PIP := $(BIN)/python $(PIP_INSTALL)
LOCK := hack/requirements.txt
EXTRAS := local,uvloop,tracing,postgres
SCRIPTS := $(sort $(wildcard .ci/*) $(shell find hack deploy -name '*.sh'))
# The plugin puts variables in front of these.
FRAGMENTS := $(wildcard plugins/trainmaster/plugins/*.sh)
GENERATORS := $(sort $(wildcard hack/generate_*.py))

# Tests start hundreds of processes, each of which would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: run docs test test-nightly test-lowest test-frameworks plugin-tour deploy-smoke deploy-test check bench instructions profile matrix soak fuzz e2e image-rootfs generate lock build clean help FORCE

run: $(VENV)/.examples ## Train the example on an embedded cluster: PyTorch, or with LIGHT=1 NumPy alone
	@TORCH_INDEX_URL='$(TORCH_INDEX_URL)' hack/run_example.sh $(if $(LIGHT),numpy,torch)

test: $(VENV)/.dev $(VENV)/.sdk ## Run the gate: the tests without processes and real clocks, and a smoke set
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'not nightly' $(ARGS)

test-nightly: $(VENV)/.dev $(VENV)/.deploy $(VENV)/.sdk $(VENV)/.examples $(VENV)/.frameworks $(MPI) ## Run all tests
	@hack/debian_packages.sh --optional promtool prometheus chromium sshd
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n $(NIGHTLY_WORKERS) --dist loadfile --ignore tests/sim/test_matrix.py $(ARGS)

check: $(VENV)/.dev $(VENV)/.types $(VENV)/.deploy ## Lint, formatting, types, imports between the packages, generated files
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	PATH='$(abspath $(BIN))':"$$PATH" PYRIGHT_PYTHON_IGNORE_WARNINGS=1 pyright --verifytypes trainmaster.runtime.sdk --ignoreexternal
	PATH='$(abspath $(BIN))':"$$PATH" PYRIGHT_PYTHON_IGNORE_WARNINGS=1 pyright --project examples/plugins
	@if [ -x $(BIN)/hadolint ]; then echo hadolint; $(BIN)/hadolint Dockerfile; fi
	@if [ -x $(BIN)/shellcheck ]; then echo shellcheck; $(BIN)/shellcheck $(SCRIPTS) \
		&& $(BIN)/shellcheck --shell=bash --exclude=SC2154 $(FRAGMENTS); fi
	$(BIN)/python hack/lock.py --check
	@for each in $(GENERATORS); do echo "$$each --check"; $(BIN)/python $$each --check || exit 1; done

test-lowest: $(LOWEST)/.ready ## Run the tests that meet our dependencies, with the oldest of them that pyproject.toml allows
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile $(LOWEST_TESTS) $(ARGS)

test-frameworks: $(HEAVY)/.ready ## Train with TensorFlow and PaddlePaddle on an embedded cluster: downloads half a GB
	$(HEAVY)/bin/python -m pytest tests/e2e/test_job_frameworks.py $(ARGS)

e2e: $(VENV)/.dev ## Run the end-to-end tests on the cluster of KUBECONFIG=FILE, which has Trainmaster; default: an embedded one
	TRAINMASTER_E2E_KUBECONFIG='$(E2E_KUBECONFIG)' $(BIN)/python -m pytest -m any_cluster tests/e2e $(ARGS)

image-rootfs: $(VENV)/.dev ## Build what the image of the controller has, without an engine; run the manager from it (Linux, root)
	TRAINMASTER_IMAGE_ROOTFS=1 $(BIN)/python -m pytest tests/image $(ARGS)

plugin-tour: $(VENV)/.runtime ## Build and install the example plugins, try them on an embedded cluster, break one; follow docs/write-a-plugin.md
	@hack/plugin_tour.sh

deploy-smoke: $(VENV)/.dev $(VENV)/.deploy $(VENV)/.examples ## Apply deploy/ to an embedded cluster: two replicas, webhooks, a TrainJob
	$(BIN)/python -m pytest $(DEPLOY_SMOKE) $(ARGS)

deploy-test: $(VENV)/.dev $(VENV)/.deploy $(VENV)/.examples $(VENV)/.frameworks ## Apply deploy/ and its chart, fail over, update: part of test-nightly
	$(BIN)/python -m pytest -n auto --dist loadfile tests/deploy $(ARGS)

bench: $(VENV)/.runtime ## Measure a manager that faces many TrainJobs: speed, CPU, memory, requests
	$(BIN)/python -m bench $(ARGS)

instructions: $(VENV)/.runtime ## Count the instructions of a manager for a TrainJob, and fail if they are clearly more than in the reference (Linux)
	@hack/debian_packages.sh valgrind vgdb
	$(BIN)/python -m bench.instructions $(ARGS)

profile: $(VENV)/.runtime ## Draw into profile.svg what a manager that faces many TrainJobs takes CPU for
	$(BIN)/py-spy record --subprocesses --output profile.svg -- $(BIN)/python -m bench $(ARGS)

matrix: $(VENV)/.dev ## Run every perturbation plan of the simulated clusters; `make test` runs one in fifty
	$(BIN)/python -m pytest -n auto tests/sim/test_matrix.py $(ARGS)

soak: $(VENV)/.dev ## Run a manager behind a network that breaks, for MINUTES=20; fail over between two
	TRAINMASTER_SOAK_MINUTES='$(MINUTES)' $(BIN)/python -m pytest tests/soak tests/e2e/test_failover.py $(ARGS)

fuzz: $(VENV)/.dev ## Send a manager 100,000 odd reviews, 20,000 odd reports and 20,000 odd objects while it serves TrainJobs
	TRAINMASTER_FUZZ_REVIEWS=100000 TRAINMASTER_FUZZ_REPORTS=20000 TRAINMASTER_FUZZ_OBJECTS=20000 \
		$(BIN)/python -m pytest -n auto \
		tests/controller/webhooks/test_fuzz.py tests/soak/test_fuzz.py tests/controller/test_fuzz.py $(ARGS)

docs: $(VENV)/.dev $(VENV)/.docs $(VENV)/.docsite ## Build the documentation as a site, in site/, and check it: no link leads nowhere
	@hack/debian_packages.sh --optional chromium
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --config-file hack/docsite/mkdocs.yml
	@TRAINMASTER_SITE='$(CURDIR)/site' $(BIN)/python -m pytest -q tests/docs/site $(ARGS)
	@echo 'open site/index.html'

generate: $(VENV)/.dev ## Write the generated files again
	@for each in $(GENERATORS); do echo "$$each"; $(BIN)/python $$each || exit 1; done

lock: $(VENV)/.dev ## Pin the dependencies again, after a change of pyproject.toml
	$(BIN)/python hack/lock.py $(if $(UPGRADE),--upgrade)

build: $(VENV)/.dev ## Build the wheel and the source distribution into dist/
	$(BIN)/python -m build --no-isolation

clean: ## Stop the embedded cluster of this checkout; delete the environment and everything that was built
	@if [ -x $(BIN)/trainmaster ] && [ -d .trainmaster ]; then $(BIN)/trainmaster cluster down --purge; fi
	rm -rf $(VENV) $(LOWEST) $(HEAVY) build dist site .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache \
		.hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## Show this
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## /  make \1#/p' $(MAKEFILE_LIST) | awk -F'#' '{ printf "%-18s %s\n", $$1, $$2 }'

# The environment. Stamp files say what has been installed; each is older than what asks for it to be done again.
# One that was made elsewhere (a copied checkout), or whose Python is gone, is made anew.
ifneq ($(shell $(BIN)/python -c '' 2>/dev/null && cat $(VENV)/.created 2>/dev/null),$(CURDIR))
$(VENV)/.created: FORCE
endif

$(VENV)/.created:
	@hack/make_venv.sh '$(PYTHON)' $(VENV)
	@echo '$(CURDIR)' > $@

$(VENV)/.runtime: $(VENV)/.created pyproject.toml $(LOCK)
	@echo 'installing trainmaster and what it needs, on laptops as well'
	@$(PIP) -c $(LOCK) hatchling
	@$(PIP) -c $(LOCK) -e '.[local,uvloop]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo 'installing all extras and the group dev of pyproject.toml'
	@$(PIP) -c $(LOCK) -e '.[$(EXTRAS)]' --group dev
	@touch $@

$(VENV)/.%: $(VENV)/.runtime
	@echo 'installing the group $* of pyproject.toml'
	@$(PIP) -c $(LOCK) --group $*
	@touch $@

# A site is built without these scripts as well, if npm's registry cannot be reached.
$(VENV)/.docsite: $(VENV)/.types $(addprefix hack/docsite/,install.sh package.json package-lock.json)
	@echo 'installing hack/docsite/package.json'
	@if hack/docsite/install.sh $(VENV); then touch $@; fi

$(LOWEST)/.ready: pyproject.toml $(LOCK)
	@hack/make_venv.sh '$(PYTHON)' $(LOWEST)
	@echo 'installing trainmaster with the oldest versions of what it needs'
	@$(LOWEST)/bin/python hack/lock.py --lowest > $(LOWEST)/lowest.txt
	@$(LOWEST)/bin/python $(PIP_INSTALL) -c $(LOWEST)/lowest.txt hatchling
	@$(LOWEST)/bin/python $(PIP_INSTALL) -c $(LOWEST)/lowest.txt -e '.[$(EXTRAS)]' --group test --group generate
	@touch $@

$(HEAVY)/.ready: pyproject.toml $(LOCK)
	@hack/make_venv.sh '$(PYTHON)' $(HEAVY)
	@echo 'installing trainmaster, TensorFlow and PaddlePaddle'
	@$(HEAVY)/bin/python $(PIP_INSTALL) -c $(LOCK) hatchling
	@$(HEAVY)/bin/python $(PIP_INSTALL) -c $(LOCK) -e '.[$(EXTRAS)]' --group test --group generate --group heavy
	@touch $@

.cache/mpi/%/.ready: pyproject.toml $(LOCK)
	@hack/make_venv.sh '$(PYTHON)' $(@D)
	@echo 'installing mpi4py and $*'
	@$(@D)/bin/python $(PIP_INSTALL) -c $(LOCK) mpi4py $*
	@touch $@
