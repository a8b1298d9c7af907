# Two commands for a newcomer: `make demo` and `make test`. Each only calls what the README also shows.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LOCK := requirements/linux-x86_64.lock

.PHONY: demo test check docs lock clean

demo: $(VENV)/.ready
	$(BIN)/varband run demo

test: $(VENV)/.ready
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(SITE) --site-dir .make/site

# The site of docs/, in site/. Strict: a link that leads nowhere fails. `check` builds it aside.
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs: $(VENV)/.ready
	$(SITE)

# uv installs the lock in seconds; pip does where uv cannot. Compiled at once, on all cores: every start of the engine
# saves 15 s where Python may not write bytecode by itself. An interrupted install leaves no .ready file, so the next call
# repairs it.
LOCKED = UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" $(BIN)/uv pip install --quiet --compile-bytecode \
  --python $(BIN)/python --no-deps --require-hashes -r
# uv looks for the hash of the very version that it takes, so it is asked for the CPU wheel by name, where there is one.
CPU_TORCH = sed 's/^torch==[^ ]*/&+cpu/' $(LOCK)
$(VENV)/.ready: $(LOCK) requirements/uv.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/uv.lock
	$(CPU_TORCH) | $(LOCKED) - || $(LOCKED) $(LOCK) \
	  || $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r $(LOCK)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# Needs uv. Versions of the lock stay where they still fit; `make lock UPGRADE=--upgrade` takes the newest. Leaves out what
# vLLM's CPU build names and must not have (requirements/README.md). A line holds a package with the hash of every file that
# the index gives; torch's has the CPU wheel's too, which this machine resolved.
COMPILE = uv pip compile --python-version 3.11 --no-annotate --no-header --quiet --generate-hashes $(UPGRADE)
LEFT_OUT = torchaudio torchvision torchcodec triton
ONE_LINE = sed -z 's/ \\\n */ /g'
lock:
	UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" $(COMPILE) pyproject.toml --all-extras \
	  $(addprefix --no-emit-package ,$(LEFT_OUT)) -o $(LOCK)
	$(ONE_LINE) -i $(LOCK)
	torch=$$(grep -o '^torch==[^+ ]*' $(LOCK)) && \
	  public=$$(echo "$$torch" | UV_FIND_LINKS= $(COMPILE) - --no-deps | $(ONE_LINE)) && \
	  sed -i "s/^torch==[^ ]*/$$public/" $(LOCK)
	uv=$$(grep -o '^uv==[^ ]*' requirements/uv.lock | $(COMPILE) - | $(ONE_LINE)) && echo "$$uv" > requirements/uv.lock

clean:
	rm -rf $(VENV) .varband site
