# Penstock. `make help` lists the targets.

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR ?= $(PREFIX)/share/man
DESTDIR ?=
STRIP ?= strip
SWIFT ?= swift
CC ?= cc
export SWIFT CC

VERSION := $(shell sed -n 's/^\#define PENSTOCK_VERSION *"\(.*\)"$$/\1/p' include/penstock/version.h)
MAJOR := $(firstword $(subst ., ,$(VERSION)))

SHARED := build/lib/libpenstock.so.$(VERSION)
STATIC := build/lib/libpenstock.a
CONTAINED := build/contained/libpenstock.so.$(MAJOR)
PEER := build/bin/penstock-peer

HEADERS := $(wildcard include/penstock/*.h)
BUILD_FILES := Package.swift scripts/build scripts/common.sh scripts/penstock.map include/module.modulemap $(HEADERS)
SOURCES := $(shell find Sources -type f ! -path 'Sources/penstock-peer/*' ! -path 'Sources/Penstock/*' \
  ! -path 'Sources/PenstockGRPC/*' 2>/dev/null)
PEER_SOURCES := $(shell find Sources/penstock-peer -type f 2>/dev/null)

.DEFAULT_GOAL := all
.PHONY: all lib peer wheel install uninstall check check-again check-all demo bench bench-quick check-long \
  check-mutations coverage mutants fuzz soak format lint clean help doctor

## all: the library (the default)
all: lib

## lib: build/lib/libpenstock.so and libpenstock.a
lib: doctor
	@$(MAKE) -s --no-print-directory $(SHARED)

## peer: build/bin/penstock-peer, the gRPC server for demo, tests and benchmarks
peer: doctor
	@$(MAKE) -s --no-print-directory $(PEER)

## wheel: the Python package with the library and all that it needs inside, and its sources, into dist/
wheel:
	@scripts/doctor --wheel
	@scripts/setup-tests
	@$(MAKE) -s --no-print-directory $(SHARED)
	@$(MAKE) -s --no-print-directory $(CONTAINED)
	@scripts/wheel

doctor:
	@scripts/doctor

build/toolchain:
	@scripts/doctor

$(SHARED): $(SOURCES) $(BUILD_FILES) build/toolchain
	@scripts/build lib
	@touch $(SHARED)

$(STATIC): $(SHARED)

# Linked from the archive that the shipped library was linked from.
$(CONTAINED): $(SHARED) scripts/static-libraries
	@scripts/build contained

$(PEER): $(SOURCES) $(PEER_SOURCES) $(BUILD_FILES) build/toolchain
	@scripts/build peer

CMAKEDIR := $(LIBDIR)/cmake/penstock
FILL = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
  -e 's|@VERSION@|$(VERSION)|' -e 's|@NUMBERS@|$(VERSION:-dev=)|' -e 's|@MAJOR@|$(MAJOR)|'

## install: into PREFIX (/usr/local), under DESTDIR; WITH_PYTHON=python3 also installs the package and the command for that Python
install: lib
	install -d "$(DESTDIR)$(INCLUDEDIR)/penstock" "$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(CMAKEDIR)" \
	  "$(DESTDIR)$(MANDIR)/man3"
	install -m 644 $(HEADERS) "$(DESTDIR)$(INCLUDEDIR)/penstock/"
	install -m 755 $(SHARED) "$(DESTDIR)$(LIBDIR)/libpenstock.so.$(VERSION)"
	$(if $(STRIP),$(STRIP) --strip-unneeded "$(DESTDIR)$(LIBDIR)/libpenstock.so.$(VERSION)")
	ln -sf libpenstock.so.$(VERSION) "$(DESTDIR)$(LIBDIR)/libpenstock.so.$(MAJOR)"
	ln -sf libpenstock.so.$(MAJOR) "$(DESTDIR)$(LIBDIR)/libpenstock.so"
	install -m 644 $(STATIC) "$(DESTDIR)$(LIBDIR)/libpenstock.a"
	$(FILL) pkgconfig/penstock.pc.in > "$(DESTDIR)$(LIBDIR)/pkgconfig/penstock.pc"
	$(FILL) cmake/penstock-config.cmake.in > "$(DESTDIR)$(CMAKEDIR)/penstock-config.cmake"
	$(FILL) cmake/penstock-config-version.cmake.in > "$(DESTDIR)$(CMAKEDIR)/penstock-config-version.cmake"
	scripts/manual > "$(DESTDIR)$(MANDIR)/man3/penstock.3"
	$(if $(WITH_PYTHON),PENSTOCK_WHEEL_LIBRARY= $(WITH_PYTHON) -m pip install --quiet --no-deps --ignore-installed \
	  --prefix "$(PREFIX)" $(if $(DESTDIR),--root "$(DESTDIR)") ./bindings/python)

## uninstall: removes what install put into PREFIX, but for the Python package, which pip removes
uninstall:
	rm -f $(addprefix "$(DESTDIR)$(INCLUDEDIR)/"penstock/,$(notdir $(HEADERS)))
	rm -f "$(DESTDIR)$(LIBDIR)"/libpenstock.so "$(DESTDIR)$(LIBDIR)/libpenstock.so.$(MAJOR)"
	rm -f "$(DESTDIR)$(LIBDIR)/libpenstock.so.$(VERSION)" "$(DESTDIR)$(LIBDIR)/libpenstock.a"
	rm -f "$(DESTDIR)$(LIBDIR)/pkgconfig/penstock.pc"
	rm -rf "$(DESTDIR)$(CMAKEDIR)"
	rm -f "$(DESTDIR)$(MANDIR)/man3/penstock.3"
	-rmdir "$(DESTDIR)$(INCLUDEDIR)/penstock" 2>/dev/null || true

## demo: builds everything and runs the C and the Python demo against a server of their own
demo: doctor
	@$(MAKE) -s --no-print-directory $(SHARED) $(PEER)
	@scripts/demo

## check: each distinct test once; SUITES="c python" picks suites, those of check-again, too
check:
	@scripts/doctor --check
	@scripts/check $(SUITES)

## check-again: the same tests under sanitizers, valgrind and other mallocs, and what runs long
check-again:
	@scripts/doctor --check
	@scripts/check --again $(SUITES)

MINUTES ?= 20

## check-all: both, random chains and fuzzing for MINUTES in each mode, other Pythons, mutations, mutants; takes hours
check-all:
	@scripts/doctor --all
	@scripts/check --all $(MINUTES)

SECONDS ?= 60
MODE ?= full

## check-long: random chains against the model for SECONDS, in MODE full, embedded or thread
check-long: doctor
	@if [ "$(MODE)" = embedded ]; then $(MAKE) -s --no-print-directory $(SHARED); fi
	@if [ "$(MODE)" != full ]; then $(MAKE) -s --no-print-directory $(PEER); fi
	@scripts/check-long $(SECONDS) $(MODE)

## check-mutations: shows that the law tests fail when the chain is wrong
check-mutations: doctor
	@scripts/mutations

## fuzz: every fuzzer for SECONDS; FUZZERS="wire json" picks some
fuzz: doctor
	@scripts/fuzz $(SECONDS) $(FUZZERS)

## soak: 1,000 calls a second of all kinds for SECONDS, with faults all the while
soak:
	@scripts/doctor --check
	@scripts/setup-tests
	@$(MAKE) -s --no-print-directory $(SHARED) $(PEER)
	@Tests/soak/run $(SECONDS)

## mutants: puts 200 small mistakes into all modules, one at a time; a suite has to notice each (an hour or two)
mutants:
	@scripts/doctor --check
	@scripts/setup-tests
	@$(MAKE) -s --no-print-directory $(SHARED) $(PEER)
	@scripts/mutants

## coverage: which lines of the library the C, Python, fault and interop suites run, and which they do not (10 minutes)
coverage:
	@scripts/doctor --check
	@scripts/setup-tests
	@$(MAKE) -s --no-print-directory $(SHARED) $(PEER)
	@scripts/coverage

## bench: ratios against other gRPC clients in the same run, into docs/benchmarks.md; then size and instructions; 15 minutes
bench:
	@scripts/doctor --bench
	@$(MAKE) -s --no-print-directory $(SHARED) $(PEER)
	@scripts/bench

## bench-quick: bench with fewer and shorter rounds; about 2 minutes
bench-quick:
	@scripts/doctor --bench
	@$(MAKE) -s --no-print-directory $(SHARED) $(PEER)
	@scripts/bench --quick

## bench-growth: unary calls with growing numbers of one thing, into docs/benchmarks.md (4 minutes)
bench-growth:
	@scripts/doctor
	@$(MAKE) -s --no-print-directory $(SHARED) $(PEER)
	@PYTHONDONTWRITEBYTECODE=1 python3 benchmarks/growth.py

## format: rewrites Swift, C and Python sources in the project's style
format:
	@scripts/lint --fix

## lint: reports where sources are not in the project's style
lint:
	@scripts/lint

## clean: removes what was built (the tools in .venv stay)
clean:
	rm -rf build dist .build bindings/python/build bindings/python/src/penstock.egg-info bindings/python/src/penstock/_lib

## help: prints this list
help:
	@sed -n 's/^## \([a-z-]*\): /\1|/p' $(firstword $(MAKEFILE_LIST)) | \
	  awk -F'|' '{ printf "  make %-16s %s\n", $$1, $$2 }'
