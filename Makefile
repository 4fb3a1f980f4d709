# The front door; the build is meson.build. Any target in another flavour: make B=asan
#   make   make run   make test   make unit   make lint   make bench   make docs
B ?= rel
O := build/$(B)

rel  := -Dbuildtype=debugoptimized
dev  := -Dbuildtype=debug -Doptimization=g
asan := -Dbuildtype=debug -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false
tsan := -Dbuildtype=debug -Doptimization=1 -Db_sanitize=thread -Db_lundef=false
fuzz := $(asan) -Dfuzz=true

all: $(O)/build.ninja
	@ninja -C $(O) --quiet
	@ln -sfn $(B)/src/stoker build/stoker

$(O)/build.ninja:
	$(if $(filter fuzz,$(B)),CC=clang) meson setup $(O) $($(B))

.PHONY: all
