# Users' commands. Each does its own set-up. `cargo` does the work; CONTRIBUTING.md lists what lies beneath.

# BUILD_PROFILE=dev: the command as tests have it, built with them; what has no time for two builds of everything sets it.
BUILD_PROFILE ?= release
NUMAPILOT := target/$(BUILD_PROFILE:dev=debug)/numapilot
BUILD := build
CARGO_FLAGS := --locked
# A workspace of its own that builds beside everything else.
QUERY := --manifest-path crates/query/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target)
DEMO_TRACE := $(BUILD)/demo/streamcluster.numatrace
DEMO_PICTURE := $(BUILD)/demo/streamcluster-traffic.svg
DEMO_PAGE := $(BUILD)/demo/streamcluster.html

# Packages for another processor than this machine's: make packages TARGET=aarch64-unknown-linux-gnu makes them in dist/ below a folder of that name, with
# Debian's cross compiler (docs/start/install.md). From the command line only: in the environment, other programs' variables may have this name.
CROSS := $(if $(filter command,$(firstword $(origin TARGET))),$(TARGET))
# What Debian names the processor's compilers and folders by.
TRIPLET := $(subst riscv64gc,riscv64,$(subst -unknown-,-,$(CROSS)))
CROSS_FLAGS := $(if $(CROSS),--target $(CROSS))
# What was built for packages: programs, and the C libraries; and where the packages go.
PACKED := target/$(if $(CROSS),$(CROSS)/)release
PACKED_LIBRARIES := $(BUILD)/packages$(if $(CROSS),/$(CROSS))
DIST := dist$(if $(CROSS),/$(CROSS))
ifneq ($(CROSS),)
export CARGO_TARGET_$(shell echo '$(CROSS)' | tr a-z- A-Z_)_LINKER := $(TRIPLET)-gcc
endif

# Packages name no folder of the machine that builds them, in messages or debug symbols: other machines make the same bytes, and nobody reads who built them.
# Other flags mean another build, so this holds for the whole run of make: `make query packages` builds everything once.
ifneq ($(filter packages,$(MAKECMDGOALS)),)
# Else a release build of some earlier day would be packed.
ifneq ($(BUILD_PROFILE),release)
$(error packages have the release build: leave BUILD_PROFILE=$(BUILD_PROFILE) out)
endif
REGISTRY := $(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src
REMAPPED := $(CURDIR)=/usr/src/numapilot $(REGISTRY)=/usr/src/crates $(shell rustc --print sysroot)/lib/rustlib/src/rust=/usr/src/rust
MAPPED_C := $(REMAPPED:%=-ffile-prefix-map=%)
export RUSTFLAGS := $(strip $(RUSTFLAGS) $(REMAPPED:%=--remap-path-prefix=%))
# What the crate `cc` gives to compilers of C, beside CFLAGS.
export HOST_CFLAGS := $(strip $(HOST_CFLAGS) $(MAPPED_C))
export TARGET_CFLAGS := $(strip $(TARGET_CFLAGS) $(MAPPED_C))
# Lines for backtraces; they go into packages of their own.
export CARGO_PROFILE_RELEASE_DEBUG := line-tables-only
endif

.PHONY: all build query demo lab lab-pilot lab-servers zoo test check bench experiments servers lint style fuzz page docs setup-demo setup-test setup-emulated setup-bench setup-experiments setup-lab setup-web setup-zoo setup-servers setup-docs setup-packages setup-abi packages release-dry-run abi workloads clean help

all: build

help:
	@echo "make demo    set up, build, record a real program on a simulated four-node machine, show the report"
	@echo "make lab     set up, boot a real kernel with four memory nodes in QEMU, show what numapilot sees there"
	@echo "make lab-pilot  the pilot in the lab, beside NUMA balancing, numad and numactl, as tables (an hour; LAB_PILOT=--quick: 10 min)"
	@echo "make lab-servers  PostgreSQL and memcached in the lab, unbalanced, by the kernel alone and by numapilot, and the daemon killed beside them (LAB_SERVERS: options)"
	@echo "make zoo     real programs from Debian's source packages under instrument, emulate and track (an hour or more; ZOO=--quick: six of them; docs/zoo.md)"
	@echo "make servers real servers and runtimes from Debian's packages, natively and recorded (an hour; SERVERS=\"redis nginx\": those; docs/guides/servers.md)"
	@echo "make test    set up, build, run every test; ends with those that could not run here, and why"
	@echo "             (TARGET=aarch64-unknown-linux-gnu: tests built for 64-bit Arm by cross compilers, run in QEMU's user mode; as root)"
	@echo "make check   the quick lane: lint, unit tests and quick integration tests"
	@echo "make bench   set up, build, print the benchmarks (ratios against named peers, in one run; BENCH=\"offline import\": those)"
	@echo "             COMPARE=REV: against that revision, built beside this one; fails where something is slower by more than 5 %"
	@echo "make experiments  published results beside simulated ones (an hour and a half; EXPERIMENTS=--quick: half an hour)"
	@echo "make lint    formatting and clippy, warnings as errors"
	@echo "make style   all of that but clippy: formatting, the types of web/, the rules of tidy"
	@echo "make fuzz    every decoder's fuzz target, FUZZ_SECONDS=60 each"
	@echo "make page    the HTML report's script, after a change in web/"
	@echo "make docs    the documents as a searchable book (build/book/index.html), every link checked"
	@echo "make build   only the release binary: $(NUMAPILOT)"
	@echo "make packages  packages for Debian and rpm, tarballs, a wheel, a container image and a bill of materials in dist/"
	@echo "             (with numapilot-query, if make query built it; TARGET=aarch64-unknown-linux-gnu: for that processor)"
	@echo "make release-dry-run  a release without publishing: checks, packages, notes, a table of what would be uploaded (RELEASE=--unreleased; REUSE=yes: of dist/)"
	@echo "make query   that, and the SQL engine of 'numapilot query' beside it (some minutes more)"
	@echo "make abi     the C libraries' interfaces compared with those of the last release, and which version the difference needs (ABI=--write: renews the baselines)"

setup-demo:
	@tools/setup demo
setup-test:
	@tools/setup test
setup-emulated:
	@tools/setup emulated $(CROSS)
setup-bench:
	@tools/setup bench
setup-experiments:
	@tools/setup experiments
setup-lab:
	@tools/setup lab
setup-web:
	@tools/setup web
setup-zoo:
	@tools/setup zoo
setup-servers:
	@tools/setup servers
setup-docs:
	@tools/setup docs
setup-packages:
	@tools/setup packages $(CROSS)
setup-abi:
	@tools/setup abi

build: setup-demo
	@cargo build --profile $(BUILD_PROFILE) $(CARGO_FLAGS) $(if $(filter dev,$(BUILD_PROFILE)),--workspace --tests,-p numapilot)

# The SQL engine is large, so it is a program of its own, which `numapilot query` starts.
query: $(if $(CROSS),setup-demo,build)
	@cargo build --release $(CARGO_FLAGS) $(CROSS_FLAGS) $(QUERY)

# What people install, in dist/: docs/start/install.md. The SQL engine is in it if it was built, and is brought up to date then. lintian and rpmlint check it,
# where they are installed.
# Each package of Rust is built alone, as it asks for less of what all share than the workspace does; and its licences are listed as it is built.
packages: $(if $(CROSS),setup-demo,build) setup-packages
	@if [ -e $(PACKED)/numapilot-query ]; then $(MAKE) --no-print-directory query; fi
ifneq ($(CROSS),)
	@cargo build --release $(CARGO_FLAGS) $(CROSS_FLAGS) -p numapilot
	@cargo build --release $(CARGO_FLAGS) $(CROSS_FLAGS) -p numapilot-capi
endif
	@cargo build --release $(CARGO_FLAGS) $(CROSS_FLAGS) -p numapilot-python
	@$(MAKE) --no-print-directory -C crates/capi OUT=$(CURDIR)/$(PACKED_LIBRARIES)/capi \
		$(if $(CROSS),CC=$(TRIPLET)-gcc ARCHIVE=$(CURDIR)/$(PACKED)/libnumapilot_capi.a)
	@$(MAKE) --no-print-directory -C crates/replica/c OUT=$(CURDIR)/$(PACKED_LIBRARIES)/replica CFLAGS="-O2 -g $(MAPPED_C)" \
		$(if $(CROSS),CC=$(TRIPLET)-gcc AR=$(TRIPLET)-ar)
	@tools/packages --built $(PACKED) --libraries $(PACKED_LIBRARIES) --work $(PACKED_LIBRARIES)/work $(DIST)
	@tools/lint-packages $(DIST)

# All of a release but publishing it, of which the workflow `release` uploads what this leaves: dist/ and build/release/NOTES.md. TAG: the release's tag (else
# there may be none yet). RELEASE: more options of tools/release, such as --unreleased. REUSE=yes: with the packages that are in dist/.
# A tag is text of others: make expands none of it, and the shell takes it as one word.
RELEASED := tools/release $(if $(value TAG),--tag "$$TAG") $(RELEASE)
release-dry-run: setup-packages
	@$(RELEASED)
	@$(if $(REUSE),,$(MAKE) --no-print-directory query packages)
	@$(RELEASED) dist

# The C libraries' interfaces to built programs, beside what they were at the last release (tools/abi-baseline*.txt). In ABI: --print, --write, one's name.
abi: setup-abi
	@$(MAKE) --no-print-directory -C crates/capi OUT=$(CURDIR)/$(BUILD)/capi
	@$(MAKE) --no-print-directory -C crates/replica/c OUT=$(CURDIR)/$(BUILD)/replica
	@tools/abi --library $(BUILD)/capi/libnumapilot.so.0 --library $(BUILD)/replica/libnumapilot_replica.so.0 $(ABI)

# The same real programs twice: as any compiler builds them, and with numapilot's call-outs.
INSTRUMENTED := OUT=$(CURDIR)/$(BUILD)/instrumented CC="$(CURDIR)/$(NUMAPILOT) cc" CXX="$(CURDIR)/$(NUMAPILOT) c++" FC="$(CURDIR)/$(NUMAPILOT) fc"
workloads: build
	@$(MAKE) --no-print-directory -C workloads OUT=$(CURDIR)/$(BUILD)/native
	@$(MAKE) --no-print-directory -C workloads $(INSTRUMENTED)

# Only the program that it shows: the others need compilers more.
demo: build
	@$(MAKE) --no-print-directory -C workloads $(INSTRUMENTED) $(CURDIR)/$(BUILD)/instrumented/streamcluster
	@mkdir -p $(dir $(DEMO_TRACE))
	@tools/demo $(NUMAPILOT) $(BUILD)/instrumented $(DEMO_TRACE) $(DEMO_PICTURE) $(DEMO_PAGE)

# Any other command: cargo xtask lab -- CMD (--help has examples).
lab: build setup-lab
	@cargo xtask lab -- sh -c 'uname -srm; $(NUMAPILOT) topo'

# The pilot beside NUMA balancing, numad and numactl; and what its actuator moves, beside raw calls.
lab-pilot: build setup-lab
	@cargo build --release $(CARGO_FLAGS) -p numapilot-kernel --example move_throughput
	@cargo build $(CARGO_FLAGS) -p numapilot-lab --bin xtask
	@cargo xtask lab --icount -- target/release/examples/move_throughput
	@tools/lab-pilot $(NUMAPILOT) target/debug/xtask $(LAB_PILOT)

# Servers whose memory is misplaced, with and without the daemon. Options in LAB_SERVERS: --servers, --ways, --kills, --seed, --json.
lab-servers: build setup-lab
	@cargo build $(CARGO_FLAGS) -p numapilot-lab --bin xtask
	@tools/lab-servers $(NUMAPILOT) target/debug/xtask --kills 5 $(LAB_SERVERS)

# Options in ZOO: --quick, --engines LIST, --jobs N, --docs, --homes, names of programs.
zoo: build setup-zoo
	@tools/zoo $(NUMAPILOT) $(ZOO)

# Options in SERVERS: --engines LIST, --pairs N, --docs, names of servers.
servers: build setup-servers
	@tools/servers $(NUMAPILOT) $(SERVERS)

# Ends with how many passed, and which could not run here and why; CI=true (or NUMAPILOT_REQUIRE=all): fails for those that must.
# TARGET=aarch64-unknown-linux-gnu: tests built for that processor, run in QEMU's user mode (tools/emulated-tests). TESTS="trace runtime/stacks": those.
ifeq ($(CROSS),)
test: setup-test workloads
	@tools/test $(CURDIR)/$(BUILD)/native $(QUERY)
else
test: setup-emulated
	@tools/test --emulated $(TESTS)
endif

# The quick lane: what takes minutes after a change. tools/slow-tests lists what it leaves to `make test`.
check: lint setup-test
	@tools/test --quick

# Names and options in BENCH: names of benchmarks, --json FILE, --page; with COMPARE=REV --rounds N, --limit 5%.
bench: setup-bench workloads query
	@tools/bench $(NUMAPILOT) $(BUILD) $(if $(COMPARE),--compare '$(COMPARE)') $(BENCH)

# Options in EXPERIMENTS: --quick, --for SECONDS, --drawn, --predict, --minutes N, names of programs.
experiments: setup-experiments workloads
	@experiments/run $(NUMAPILOT) $(BUILD)/instrumented $(BUILD)/experiments $(EXPERIMENTS)

lint: style
	@cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings
	@cargo clippy $(CARGO_FLAGS) $(QUERY) --all-targets -- -D warnings

# All of it but clippy. The workspace and not its package: what crates ask of each other would be less for that alone, and all of it built twice.
style: setup-demo setup-web
	@cd web && npm run --silent check
	@cargo fmt --all --check
	@cargo fmt --manifest-path crates/query/Cargo.toml --check
	@cargo test $(CARGO_FLAGS) --quiet --workspace --test tidy

# The HTML report's script and style, from web/ into crates/report/assets: only after a change there; the built files are committed.
page: setup-web
	@cd web && npm run --silent build

# The documents as a book that opens from disk. Links are checked in the documents and, as the book has them, once more.
BOOK := $(BUILD)/book
MDBOOK_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/numapilot/mdbook/bin
docs: setup-docs
	@PATH="$$PATH:$(MDBOOK_CACHE)" mdbook build
	@tools/docs-links
	@tools/docs-links --book $(BOOK)
	@echo "The book: $(CURDIR)/$(BOOK)/index.html"

fuzz:
	@for target in wire chunks tables meta perf_records perf_files go_table generated capi; do fuzz/run $$target $(or $(FUZZ_SECONDS),60) || exit 1; done

clean:
	@rm -rf $(BUILD) dist
	@cargo clean
