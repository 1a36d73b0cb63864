# Every target sets up what it needs in .venv, so each works as the first command in a fresh clone.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed-for

# System packages, as `package` or, where the command has another name, `package:command`.
# A package counts as present when its command is found.
TEST_PACKAGES  := chromium curl postgresql:pg_ctlcluster default-jre-headless:java
SPARK_PACKAGES := default-jre-headless:java
BENCH_PACKAGES := redis-server wrk

.DEFAULT_GOAL := help
.PHONY: help setup run test test-spark check format crash bench bench-spark demo system-deps lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(STAMP) ## Create .venv with the pinned requirements and this package

run: setup ## Start the server (TOPICS_* variables configure it)
	@exec $(VENV)/bin/topics serve

test: setup system-deps ## Run every test but the longest, which are part of `make crash`
	$(PY) -m tests.lanes -m "not long"

test-spark: setup ## Run only the tests that start Spark: classic, Connect and a cluster
	@$(call require_packages,$(SPARK_PACKAGES))
	$(PY) -m pytest tests/spark

check: setup ## Check format, lint and strict types, and run the fast tests
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m pytest tests -m "not slow and not long"

format: setup ## Rewrite the code to the project's format and fix what lint can fix
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

crash: setup system-deps ## Cut power, kill and play random histories for much longer than `make test` does
	$(PY) -m pytest tests/crash tests/simulation --hypothesis-profile=long --timeout=0
	$(PY) -m pytest tests -m long

bench: setup ## Measure against the figures in bench/RESULTS.md (needs redis-server and wrk)
	@$(call require_packages,$(BENCH_PACKAGES))
	$(PY) -m bench

bench-spark: setup ## Measure Spark: connector, routing, archive (BENCH=--only=routing for some of it; needs a Java runtime)
	@$(call require_packages,$(SPARK_PACKAGES))
	$(PY) -m bench spark --results=bench/RESULTS-SPARK.md $(BENCH)

demo: setup ## See it work: a chat, routes on Spark, consumer groups and an archive, in about two minutes (needs a Java runtime)
	@$(call require_packages,$(SPARK_PACKAGES))
	@$(PY) examples/demo.py

system-deps: ## Install the system packages the tests need
	@$(call require_packages,$(TEST_PACKAGES))

COMPILE := CUSTOM_COMPILE_COMMAND="make lock" $(PY) -m piptools compile --quiet --upgrade --strip-extras \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links

lock: setup ## Pin the newest versions that pyproject.toml allows into requirements*.txt
	$(COMPILE) --output-file requirements.txt pyproject.toml
	$(COMPILE) --extra dev --extra spark --constraint requirements.txt --output-file requirements-dev.txt pyproject.toml

clean: ## Remove .venv, caches and build output (never a data directory)
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp holds the directory it was made for: an environment copied along with a checkout still points
# at the old one's source, so it is made anew.
INSTALLED_FOR := $(shell cat $(STAMP) 2>/dev/null)
ifneq ($(INSTALLED_FOR),$(CURDIR))
.PHONY: $(STAMP)
endif

$(STAMP): requirements.txt requirements-dev.txt pyproject.toml
	@$(require_python)
	@test '$(INSTALLED_FOR)' = '$(CURDIR)' || $(PYTHON) -m venv --clear $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt -r requirements-dev.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
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

# Installs those packages of $(1) whose command is missing. Java may stand where JAVA_HOME says.
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
