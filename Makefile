# The front door; the build is meson.build. Any target in another flavour: make B=dev
#   make         build build/stoker
#   make run     install what is missing, start a server, run the quickstart
#   make stop    stop the server that `make run` left running
#   make test    install what the tests need and run them all, under the sanitizers
#   make unit    the unit tests and the replayed fuzz corpora only
#   make lint    layering, formatting, static analysis
#   make docs    print docs/ from the tables
#   make bench   compare with named peers; prints ratios
#   make sim     kill the server, runners, database and store at random under 100000 jobs; prints costs (SEED=n)
B ?= rel
O := build/$(B)

rel  := -Dbuildtype=debugoptimized
dev  := -Dbuildtype=debug -Doptimization=g
san  := -Dbuildtype=debug -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false
# A fixed address: what the sanitizers know of each variable and check is 300000 places to relocate at each start.
asan := $(san) -Db_pie=false -Db_staticpic=false
tsan := -Dbuildtype=debug -Doptimization=1 -Db_sanitize=thread -Db_lundef=false
fuzz := $(san) -Dfuzz=true

all: $(O)/build.ninja
	@ninja -C $(O) --quiet
	@ln -sfn $(B)/src/stoker build/stoker

$(O)/build.ninja:
	$(if $(filter fuzz,$(B)),CC=clang) meson setup $(O) $($(B))

run:
	@tools/parts.sh build run model
	@$(MAKE) --no-print-directory B=rel all
	@tools/run.sh

stop:
	@tools/run.sh stop

# What end-to-end tests alone need is installed beside the build and the unit tests; test.sh waits for it.
test:
	@tools/parts.sh build run unit vm minio
	@mkdir -p build && rm -f build/parts.done
	@{ tools/parts.sh trainer savers model clients openai transformers llama hub tools gcs azure s3 uv builds >build/parts.out 2>&1; \
		echo $$? >build/parts.done; } & \
	$(MAKE) --no-print-directory B=asan all && PARTS_DONE=build/parts.done tools/test.sh || { wait; exit 1; }

unit:
	@tools/parts.sh build run unit vm
	@$(MAKE) --no-print-directory B=asan all
	@tools/test.sh unit

lint: all
	@tools/parts.sh lint
	tools/tidy.py
	clang-format --dry-run -Werror $$(git ls-files 'src/*.[ch]' 'tests/*.[ch]')
	@# varFuncNullUB: NULL is a pointer here; internalAstError: cppcheck 2.10 stumbles over compound literals;
	@# ctuuninitvar: it takes what a function fills for what it reads, and the compiler looks for that itself
	cppcheck --quiet --std=c11 --enable=warning,portability --include=tools/cppcheck.h --inline-suppr \
		--suppress=varFuncNullUB --suppress=internalAstError --suppress=ctuuninitvar --error-exitcode=1 -Isrc src
	@# one process a file: what clang-tidy 14 says of many at once is not reliable; its stderr only counts
	git ls-files 'src/*.c' | xargs -P 2 -I{} sh -c 'clang-tidy --quiet {} -- -std=gnu17 -D_GNU_SOURCE \
		-DSTOKER_VERSION=\"\" -Isrc $(shell pkg-config --cflags libmicrohttpd libpq) 2>/dev/null'

docs: all
	@tools/print_docs.sh

bench:
	@tools/parts.sh build run unit minio gcs azure s3 clients uv bench
	@$(MAKE) --no-print-directory B=rel all
	@ninja -C build/rel --quiet tests/bench/bench_store tests/bench/bench_run tests/bench/bench_tokens tests/bench/bench_line
	@python3 tests/bench/bench.py

SEED ?= 1
sim:
	@tools/parts.sh build
	@$(MAKE) --no-print-directory B=rel all
	@ninja -C build/rel --quiet tests/server/lives
	@for jobs in 100 10000 100000; do \
		build/rel/tests/server/lives --place --seed $(SEED) --nodes 1000 --jobs $$jobs && \
		build/rel/tests/server/lives --seed $(SEED) --nodes 1000 --jobs $$jobs || exit 1; done

.PHONY: all run stop test unit lint docs bench sim
