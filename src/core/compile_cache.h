/*
 * compile_cache.h - what compilers keep of their work, without I/O: which caches there are, where
 * their files lie in a repository, and which of them are whole.
 *
 * A cache is a folder of its own on local disk, at the same path in every job, and the compiler
 * finds it by a variable. What it makes is kept in a repository of models:
 *
 *     neuronxcc-VERSION/MODULE_.../...    of Neuron, as its own tools have it there
 *     ccache/PATH                         what is good on every machine
 *     inductor/DEVICE/PATH                what is good on one kind of device
 *
 * A compiler knows its own entries by their names, which hold a hash of all that matters to it, so
 * files are added and never replaced; DEVICE keeps apart what could not be run, or would only
 * travel in vain.
 */
#ifndef COMPILE_CACHE_H
#define COMPILE_CACHE_H

#include "base/arena.h"

enum compile_kind {
	COMPILE_NEURON,
	COMPILE_INDUCTOR,
	COMPILE_TRITON,
	COMPILE_JAX,
	COMPILE_VLLM,
	COMPILE_TORCH_EXTENSIONS,
	COMPILE_CUDA,
	COMPILE_CCACHE,
	COMPILE_KIND_COUNT
};

struct compile_cache_kind {
	const char *name;     /* of its folder, in the job and in the repository: "inductor" */
	const char *variable; /* the compiler's, that says where the folder is */
	bool by_device;
	const char *what; /* for people */
};
extern const struct compile_cache_kind compile_cache_kinds[COMPILE_KIND_COUNT];

#define COMPILE_DEVICE_CAP 100 /* bytes of the name of a device, and NUL */
/* A part of a path for a device: what it is called, in lower case, with '-' for all but letters and
 * digits. */
void compile_cache_device(struct str name, char out[COMPILE_DEVICE_CAP]);

/* Where the file `path` of a cache is in the repository. */
const char *compile_cache_repo_path(struct arena *a, enum compile_kind kind, const char *device,
                                    const char *path);
/* The other way round; `device` is "" where the kind knows none. Both lie in the arena. False: it
 * is no file of a cache. */
struct compile_place {
	enum compile_kind kind;
	const char *device, *path;
};
bool compile_cache_place(struct arena *a, const char *repo_path, struct compile_place *out);

/* The entry that a file belongs to: one compilation, in the words of its compiler. It is the name
 * of a file or a folder in the cache, and lies in the arena. NULL: the file is not counted on its
 * own, such as code that entries of Inductor name. */
const char *compile_cache_entry(struct arena *a, enum compile_kind kind, const char *path);

/* Why a file is left out; COMPILE_TAKEN: it is not. */
enum compile_left {
	COMPILE_TAKEN,
	COMPILE_NO_ENTRY, /* locks, temporary files, logs, settings, what is rewritten in place */
	COMPILE_TORN,     /* a part of what it belongs to is missing */
	COMPILE_YOUNG,    /* somebody may still be writing */
};

struct compile_file {
	const char *path; /* in its cache */
	uint64_t size;
	int64_t changed_ms;
	struct str text; /* of what compile_cache_wants_text() names; empty: it was not read */
	bool take;       /* it is whole, and worth keeping */
	enum compile_left left;
	size_t unit; /* files of one number are one compilation: all of them go, or none */
};
#define COMPILE_TEXT_MAX ((size_t)1 << 20)
#define COMPILE_TEXTS_MAX ((size_t)64 << 20) /* of all together */
/* Does the sift look into this file, to see what belongs to it? Without its text it goes by names.
 */
bool compile_cache_wants_text(enum compile_kind kind, const char *path);
/* Such a file, of `size` bytes, that there is room for: *room begins as COMPILE_TEXTS_MAX and
 * becomes less. A kernel's has a few hundred bytes, but anybody can fill a repository with larger
 * ones. */
bool compile_cache_takes_text(enum compile_kind kind, const char *path, uint64_t size,
                              size_t *room);
/* Marks the files of a cache that are whole, by their names, what is beside them, and their age:
 * all entries of one compilation, or none. Locks, temporary files, logs of failed compilations and
 * what a compiler rewrites in place are never taken. now_ms 0: nobody writes any more. */
void compile_cache_sift(enum compile_kind kind, struct compile_file *file, size_t n,
                        int64_t now_ms);
/* Such a file names its neighbours by absolute paths; in another place than it was written in, the
 * compiler would not find them. *out gets the text for the place `root` of the cache. False: it is
 * no such file, or cannot be read; its text stays as it is. */
bool compile_cache_move(enum compile_kind kind, const char *path, struct str text, const char *root,
                        struct buf *out);
/* ninja builds again what is newer than its records say, or older than what it was made from, and
 * copies have times of their own. So what is copied with such a record gets the time that it says
 * of it; what was not built there, its sources, the earliest of all. The record is text, a line for
 * each output: https://ninja-build.org/manual.html#ref_log. */
struct compile_built {
	struct compile_output {
		struct str name; /* as the record has it: relative to its folder, or absolute */
		int64_t ns;
		size_t line;
	} * output;
	size_t n;
	int64_t first_ns;
	struct str folder; /* of the record, with its slash */
};
/* Has a file of this path such a record's name? */
bool compile_cache_is_built(const char *path);
/* What the record at `path` says lies in `text` and in the arena. False: it says nothing that can
 * be used. */
bool compile_cache_built(struct arena *a, const char *path, struct str text,
                         struct compile_built *out);
/* False: the file does not lie beside the record. */
bool compile_cache_built_ns(const struct compile_built *built, const char *path, int64_t *ns);
/* Is this file to be written after all others of its cache? Readers take it for the sign that they
 * are there. */
bool compile_cache_is_sign(const char *path);
/* Of files whose content can be judged: is it what its name promises, or a whole frame? Those of
 * other kinds always are. */
bool compile_cache_is_whole(enum compile_kind kind, const char *path, struct str content);

#endif
