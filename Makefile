# Every target sets up what it needs in .venv, so each works as the first command in a fresh clone. `make run` installs only
# what the server, the client and the commands need; the other targets add tests, tools and Spark.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
RUN    := $(VENV)/.installed-run
DEV    := $(VENV)/.installed-dev
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check

# System packages, as `package` or, where the command has another name, `package:command`.
# A package counts as present when its command is found.
TEST_PACKAGES  := chromium curl fish postgresql:pg_ctlcluster default-jre-headless:java zsh nginx-light:nginx caddy prometheus:promtool
SPARK_PACKAGES := default-jre-headless:java
BENCH_PACKAGES := redis-server wrk nats-server
LINT := build/lint
LINT_PACKAGES := prettier@3.10.1 eslint@10.15.0 @eslint/js@10.0.1 globals@17.14.0
POWERCUT_PACKAGES := e2fsprogs:mkfs.ext4

.DEFAULT_GOAL := help
.PHONY: help setup run test test-spark test-clients check lint-console format generate crash bench bench-spark powercut soak demo screenshots docs system-deps lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(DEV) ## Create .venv with all pinned requirements and this package

run: $(RUN) ## Start the server (TOPICS_* variables configure it)
	@exec $(VENV)/bin/topics serve

test: setup system-deps ## Run every test but the longest, which are part of `make crash`
	$(PY) -m tests.lanes -m "not long and not clients"

test-spark: setup ## Run only the tests that start Spark: classic, Connect and a cluster
	@$(call require_packages,$(SPARK_PACKAGES))
	$(PY) -m pytest tests/spark

test-clients: setup ## Generate TypeScript and Go clients from /openapi.json and try them (needs node, go and the network)
	$(PY) -m pytest tests -m clients

check: setup ## Check format, lint and strict types, and run the fast tests
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	@$(MAKE) --no-print-directory lint-console
	$(PY) -m pytest tests -m "not slow and not long and not clients"

# ESLint finds its packages beside its configuration, so that is copied to where they are installed.
lint-console: ## Check format and lint of the console's JavaScript (skipped without npm)
	@if ! command -v npm >/dev/null; then echo "lint-console: skipped, npm is not installed"; exit 0; fi; \
	set -e; test -x $(LINT)/node_modules/.bin/eslint || npm install --silent --no-save --prefix $(LINT) $(LINT_PACKAGES); \
	cp eslint.config.mjs $(LINT)/; \
	$(LINT)/node_modules/.bin/prettier --log-level=warn --check 'src/topics/console/**/*.{js,css,html}'; \
	$(LINT)/node_modules/.bin/eslint --config $(LINT)/eslint.config.mjs src/topics/console

format: setup ## Rewrite the code to the project's format and fix what lint can fix
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

generate: setup ## Write the files made from the declarations of the API: docs/api.md, the clients
	$(PY) -m tools.generate

crash: setup system-deps ## Cut power, kill and play random histories for much longer than `make test` does
	$(PY) -m pytest tests/crash tests/simulation --hypothesis-profile=long --timeout=0
	$(PY) -m pytest tests -m long

bench: setup ## Measure us and our peers, and write bench/RESULTS.md (about 30 minutes; BENCH="--only queues" for some of it)
	@$(call require_packages,$(BENCH_PACKAGES))
	$(PY) -m bench $(BENCH)

powercut: setup ## Cut the power of a recorded disk 200 times and damage files; write docs/RELIABILITY.md (root; ARGS=--seed=7 repeats a run)
	@$(call require_packages,$(POWERCUT_PACKAGES))
	$(PY) -m tools.powercut $(ARGS)

soak: setup ## Run everything at once for 30 minutes, with kills and full disks, and check what was promised (MINUTES= or HOURS=)
	$(PY) -m tools.soak $(if $(HOURS),--minutes=$$(($(HOURS) * 60)),$(if $(MINUTES),--minutes=$(MINUTES))) $(ARGS)

bench-spark: setup ## Measure Spark: connector, routing, archive (BENCH=--only=routing for some of it; needs a Java runtime)
	@$(call require_packages,$(SPARK_PACKAGES))
	$(PY) -m bench spark --results=bench/RESULTS-SPARK.md $(BENCH)

demo: setup ## See it work: a chat, routes on Spark, consumer groups and an archive, in about two minutes (needs a Java runtime)
	@$(call require_packages,$(SPARK_PACKAGES))
	@$(PY) tools/demo.py

screenshots: setup ## Write the pictures of the console that the README shows (ARGS=--all: every screen to build/; needs chromium)
	@$(call require_packages,chromium)
	@test -d /usr/share/fonts/opentype/inter || { $(call apt_install,fonts-inter fonts-jetbrains-mono); }
	$(PY) -m tools.screenshots $(ARGS)

docs: setup ## Build the documentation site into build/site
	$(PY) -m mkdocs build --strict --quiet
	@echo "open build/site/index.html"

system-deps: ## Install the system packages the tests need
	@$(call require_packages,$(TEST_PACKAGES))

COMPILE := CUSTOM_COMPILE_COMMAND="make lock" $(PY) -m piptools compile --quiet --upgrade --strip-extras \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

lock: setup ## Pin the newest versions that pyproject.toml allows into requirements*.txt
	$(COMPILE) --output-file requirements.txt pyproject.toml
	$(COMPILE) --extra dev --extra spark --constraint requirements.txt --output-file requirements-dev.txt pyproject.toml
	printf 'editables\nhatchling\n' | $(COMPILE) --constraint requirements-dev.txt --output-file requirements-build.txt -

clean: ## Remove .venv, caches and build output (never a data directory)
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Both stamps hold the directory they were made for: an environment copied along with a checkout still points at the
# source of the old one, so it is created again. The requirements are complete and pinned, so nothing is resolved; Python
# compiles what the server imports when it first starts, which is little of what is installed.
INSTALLED_FOR := $(shell cat $(RUN) 2>/dev/null)
ifneq ($(INSTALLED_FOR),$(CURDIR))
.PHONY: $(RUN)
endif

$(RUN): requirements.txt requirements-build.txt pyproject.toml
	@$(require_python)
	@test '$(INSTALLED_FOR)' = '$(CURDIR)' || $(PYTHON) -m venv --clear $(VENV)
	$(PIP) --no-deps --no-compile -r requirements.txt -r requirements-build.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@printf '%s' '$(CURDIR)' > $@

$(DEV): $(RUN) requirements-dev.txt
	$(PIP) -r requirements.txt -r requirements-dev.txt
	$(PY) -m compileall -q src
	@printf '%s' '$(CURDIR)' > $@

# Fails with one clear sentence unless $(PYTHON) is new enough and can make a virtual environment.
define require_python
command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; install Python 3.11 or newer" >&2; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "make: $$($(PYTHON) --version) is too old, 3.11 or newer is needed (make PYTHON=python3.12 ... names another)" >&2; \
  exit 1; }; \
$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
  package="python$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"; \
  echo "make: $(PYTHON) cannot create virtual environments; Debian has that in $$package" >&2; \
  $(call apt_install,$$package); }
endef

# Installs those packages of $(1) whose command is missing. Java may be in JAVA_HOME.
define require_packages
missing=""; PATH="$${JAVA_HOME:+$$JAVA_HOME/bin:}$$PATH"; \
for entry in $(1); do \
  command -v "$${entry#*:}" >/dev/null || missing="$${missing:+$$missing }$${entry%%:*}"; \
done; \
test -z "$$missing" || { $(call apt_install,$$missing); }
endef

# Installs with apt-get as root; otherwise says what to install and fails.
define apt_install
if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1); \
else \
  echo "make: please install: $(1)   (Debian and Ubuntu: sudo apt-get install $(1))" >&2; exit 1; \
fi
endef
