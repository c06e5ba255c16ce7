# Everything a user or a developer runs. Needs a Rust toolchain; `make test-slow` also Python 3.10 or newer,
# and `make bench` 3.11.

CARGO ?= cargo
PYTHON ?= python3
VENV := .venv

.PHONY: demo test test-slow bench instructions figures clean

# The sketches at work on handwritten digits.
demo:
	$(CARGO) run --locked --release --quiet --package argand-cli -- demo

# What CI runs: format, lints, documentation, tests.
test:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --quiet -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --locked --workspace --no-deps --quiet
	$(CARGO) test --locked --workspace

# The statistics with ten times the seeds, the paper's authors' kernel errors (if ARGAND_DATA names the folder with data
# and reference), and a 4 GB file through a bounded memory (about 9 GB of disk).
test-slow:
	ARGAND_SEEDS=60000 $(CARGO) test --locked --release --package argand --test statistics
	$(CARGO) test --locked --release --package argand --test reference --test learning -- --ignored --nocapture --test-threads 1
	$(CARGO) build --locked --release --package argand-cli
	scripts/memory-test.sh "$$($(CARGO) metadata --format-version 1 --no-deps | \
		$(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/release/argand"

# Times beside the alternatives and the limits of the machine, in one run of some minutes. ARGS may name sections (fwht,
# features, scaling, sparse, gram, gp, threads) and hold --docs, which puts tables and pictures into docs/.
bench: $(VENV)/sklearn
	ARGAND_PYTHON=$(CURDIR)/$(VENV)/bin/python $(CARGO) bench --locked --package argand -- $(ARGS)

# Instructions per row, which do not depend on what else the machine does. Needs valgrind.
instructions:
	$(CARGO) build --locked --release --package argand --example instructions
	scripts/instructions.sh "$$($(CARGO) metadata --format-version 1 --no-deps | \
		$(PYTHON) -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/release/examples/instructions"

$(VENV)/sklearn:
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --requirement crates/argand/benches/features/requirements.txt
	touch $@

# The pictures in the README and in docs/math.md.
figures:
	$(CARGO) run --locked --release --quiet --package argand-cli -- demo --seeds 30 \
		--features 64,128,256,512,1024,2048 --plot docs/demo.svg \
		--method gaussian,ctr-gaussian,rademacher,ctr-rademacher,product-srht,ctr-product-srht
	$(CARGO) run --locked --release --quiet --package argand-cli --example crossover docs/crossover.svg

clean:
	$(CARGO) clean
	rm -rf $(VENV)
