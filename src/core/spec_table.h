/*
 * spec_table.h - the tables that a specification is read and written by: a block is a list of
 * fields, a field says its name, kind, place in the struct, default and help. One reader and one
 * writer serve all of them, so that unknown keys, wrong types and the reference come from the
 * tables, and what is written is what is read. Private to core/spec*.c.
 */
#ifndef SPEC_TABLE_H
#define SPEC_TABLE_H

#include "base/record.h"
#include "core/spec.h"

#define SPEC_PATH_CAP 160
#define SPEC_TEXT_MAX ((size_t)64 << 10)     /* of a plain text field */
#define SPEC_COMMAND_MAX ((size_t)120 << 10) /* the kernel takes 128 KiB in one argument */
#define SPEC_REFS_MAX 64
#define SPEC_ARTIFACT_MAX 16
#define SPEC_GPUS_MAX 64 /* per node; as many as sched.h has bits for */

enum spec_kind {
	SPEC_TEXT,    /* const char *, up to max bytes */
	SPEC_NAME,    /* const char *, spec_name_ok */
	SPEC_PATH,    /* const char *, absolute and plain */
	SPEC_SECRET,  /* const char *, from { name: x } or { secret: x } */
	SPEC_BOOL,    /* bool */
	SPEC_I64,     /* int64_t */
	SPEC_U32,     /* uint32_t within min..max */
	SPEC_REAL,    /* double within min..max */
	SPEC_BYTES,   /* uint64_t: "64Gi", or a number of bytes */
	SPEC_GIB,     /* uint64_t bytes, from a number of GiB */
	SPEC_SECONDS, /* uint64_t: "90s", or a number of seconds */
	SPEC_SECONDS32,
	SPEC_TEXTS,   /* const char **, and size_t at `at_n`; max texts */
	SPEC_MAPS,    /* array of what `block` says, and size_t at `at_n`; at most max */
	SPEC_BLOCK,   /* a map of its own; its fields are offsets into the same struct */
	SPEC_CUSTOM,  /* read() and write() know; `block` is for the reference alone */
	SPEC_REFUSED, /* known, and refused with `help` as advice unless null, false or empty */
	SPEC_IGNORED, /* known, and without a meaning here */
};

#define SPEC_REQUIRED 1      /* in both forms */
#define SPEC_REQUIRED_FILE 2 /* in a file */
#define SPEC_CLIENT 4        /* only clients send it: refused in a file */
#define SPEC_INPUT 8         /* never written: another form of the field beside it */
#define SPEC_SPARSE 16       /* not written when it is null, 0, or none */

struct spec_reader {
	struct arena *a;
	enum spec_form form;
	struct spec_problems *problems;
	char path[SPEC_PATH_CAP];
	size_t path_n;
};

struct spec_field {
	const char *name;
	enum spec_kind kind;
	unsigned flags;
	size_t at, at_n;
	int64_t min, max;
	const char *dflt; /* as in YAML; NULL: zero */
	const struct spec_block *block;
	/* Instead of the kind's own. A SPEC_CUSTOM without write() is not written. */
	void (*read)(struct spec_reader *r, const struct doc *d, void *base);
	void (*write)(struct js *js, const void *base);
	/* 0, or where a member is, and its enum record_kind: while that is nothing, this is null.
	 */
	size_t there;
	unsigned there_kind;
	const char *type; /* of SPEC_CUSTOM, for the reference */
	const char *help;
};

struct spec_block {
	const char *title; /* of its part of the reference, a path */
	const char *help;
	const struct spec_field *field;
	size_t n;
	/* Of the items of SPEC_MAPS: the size of one, and NULL or what reads and writes one instead
	 * of the fields. Those before it, `i` of them, stand before it in memory. */
	size_t size;
	void (*read)(struct spec_reader *r, const struct doc *d, void *item, size_t i);
	void (*write)(struct js *js, const void *item);
};

#define SPEC_MAP(t, h, f)                                                                          \
	{                                                                                          \
		.title = (t), .help = (h), .field = (f), .n = COUNT(f)                             \
	}
#define SPEC_ITEM(t, h, f, type, ...)                                                              \
	{                                                                                          \
		.title = (t), .help = (h), .field = (f), .n = COUNT(f), .size = sizeof(type),      \
		##__VA_ARGS__                                                                      \
	}

/* The path of the field being read, for messages: push returns what pop needs. */
size_t spec_push(struct spec_reader *r, const char *name);
size_t spec_push_index(struct spec_reader *r, size_t i);
void spec_pop(struct spec_reader *r, size_t mark);
/* A mistake that people are told of. Of a stored specification it is none: see SPEC_STORED. */
void spec_fault(struct spec_reader *r, const struct doc *at, const char *fmt, ...) PRINTF(3, 4);
/* Reports a value that cannot be read even in a stored specification: another type. */
void spec_unreadable(struct spec_reader *r, const struct doc *at, const char *fmt, ...)
	PRINTF(3, 4);
/* A mistake of one field of the block that is being read. */
void spec_fault_at(struct spec_reader *r, const struct doc *at, const char *name, const char *fmt,
                   ...) PRINTF(4, 5);

/* Sets the defaults, then reads what is there; a required field is missed only in a map that is
 * there: a block that must be there is required itself. */
void spec_read_block(struct spec_reader *r, const struct spec_block *b, const struct doc *d,
                     void *base);
/* The same of an item of a list, which may not be null. */
void spec_read_item(struct spec_reader *r, const struct spec_block *b, const struct doc *d,
                    void *item);
void spec_write_block(struct js *js, const struct spec_block *b, const void *base);
void spec_write_secret(struct js *js, const char *name);
bool spec_judges(const struct spec_reader *r); /* values are held to their limits */
/* A field that had to be there, of the block that is being read. */
void spec_missing(struct spec_reader *r, const struct doc *map, const char *name, const char *help);
/* A text of 1..max bytes, or NULL after a problem. */
const char *spec_read_text(struct spec_reader *r, const struct doc *d, size_t max);
const char *spec_read_secret(struct spec_reader *r, const struct doc *d);
/* A list of at most `max` items, or NULL after a problem (also for null, without one). */
const struct doc *spec_read_list(struct spec_reader *r, const struct doc *d, size_t max);
bool spec_given(const struct doc *d); /* there, and not null */
void spec_reference_block(const struct spec_block *b, struct buf *out, unsigned depth);

bool spec_path_ok(const char *path); /* absolute, plain parts, no slash at the end */

extern const struct spec_block spec_file_block; /* project, team, job */
extern const struct spec_block spec_job_block;  /* the value of job, of training_job */
/* In spec_items.c, spec_weights.c, spec_python.c and spec_notify.c: what is more than a value in a
 * place. */
extern const struct spec_block spec_docker_auth_block, spec_artifact_block, spec_ref_block,
	spec_weights_block, spec_session_block, spec_notify_block, spec_python_block;
#define SPEC_BY(x) .kind = SPEC_CUSTOM, .read = spec_read_##x, .write = spec_write_##x
typedef void spec_read_fn(struct spec_reader *r, const struct doc *d, void *base);
typedef void spec_write_fn(struct js *js, const void *base);
spec_read_fn spec_read_docker_auth, spec_read_accelerator, spec_read_availability, spec_read_env,
	spec_read_session, spec_read_retry_on, spec_read_python, spec_read_enable_cache,
	spec_read_user_env;
spec_write_fn spec_write_docker_auth, spec_write_accelerator, spec_write_availability,
	spec_write_env, spec_write_session, spec_write_retry_on, spec_write_python;

/* Rules across fields: mounts that clash, fields that exclude each other. */
void spec_rules(struct spec_reader *r, const struct doc *job, struct job_spec *s);

#endif
