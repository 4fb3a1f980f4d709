/*
 * spec_table.h - the tables that a specification is read by: a block is a list of fields, a field
 * says its name, kind, place in the struct, default and help. One reader serves all of them, so
 * that unknown keys, wrong types and the reference come from the tables. Private to core/spec*.c.
 */
#ifndef SPEC_TABLE_H
#define SPEC_TABLE_H

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
	SPEC_BLOCK,   /* a map of its own; its fields are offsets into the same struct */
	SPEC_CUSTOM,  /* read() knows; `block` is for the reference alone */
	SPEC_REFUSED, /* known, and refused with `help` as advice unless null, false or empty */
	SPEC_IGNORED, /* known, and without a meaning here */
};

#define SPEC_REQUIRED 1      /* in both forms */
#define SPEC_REQUIRED_FILE 2 /* in a file */
#define SPEC_CLIENT 4        /* only clients send it: refused in a file */

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
	void (*read)(struct spec_reader *r, const struct doc *d, void *base);
	const char *type; /* of SPEC_CUSTOM, for the reference */
	const char *help;
};

struct spec_block {
	const char *title; /* of its part of the reference, a path */
	const char *help;
	const struct spec_field *field;
	size_t n;
};

#define SPEC_MAP(t, h, f)                                                                          \
	{                                                                                          \
		.title = (t), .help = (h), .field = (f), .n = COUNT(f)                             \
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
bool spec_judges(const struct spec_reader *r); /* values are held to their limits */
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
/* In spec_items.c: what is more than a value in a place. */
extern const struct spec_block spec_docker_auth_block, spec_artifact_block, spec_ref_block,
	spec_weights_block, spec_session_block, spec_notify_block, spec_python_block;
void spec_read_docker_auth(struct spec_reader *r, const struct doc *d, void *base);
void spec_read_accelerator(struct spec_reader *r, const struct doc *d, void *base);
void spec_read_availability(struct spec_reader *r, const struct doc *d, void *base);
void spec_read_env(struct spec_reader *r, const struct doc *d, void *base);
void spec_read_enable_cache(struct spec_reader *r, const struct doc *d, void *base);
void spec_read_artifacts(struct spec_reader *r, const struct doc *d, void *base);
void spec_read_refs(struct spec_reader *r, const struct doc *d, void *base);
void spec_read_weights(struct spec_reader *r, const struct doc *d, void *base);
void spec_read_session(struct spec_reader *r, const struct doc *d, void *base);
void spec_read_user_env(struct spec_reader *r, const struct doc *d, void *base);
void spec_read_retry_on(struct spec_reader *r, const struct doc *d, void *base);
/* In spec_python.c. */
void spec_read_python(struct spec_reader *r, const struct doc *d, void *base);
void spec_write_python(const struct job_spec *s, struct js *js);
/* In spec_notify.c. */
void spec_read_notify(struct spec_reader *r, const struct doc *d, void *base);

/* Rules across fields: mounts that clash, fields that exclude each other. */
void spec_rules(struct spec_reader *r, const struct doc *job, struct job_spec *s);

#endif
