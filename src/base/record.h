/*
 * record.h - structs as JSON objects by tables: one row a field, and one writer and one reader for
 * all of them.
 *
 * A reader takes what it does not know for granted (a newer program wrote it), but not what is
 * missing or has the wrong kind: a program that guesses is worse than one that stops.
 */
#ifndef RECORD_H
#define RECORD_H

#include "base/hash.h"
#include "base/json.h"
#include "base/words.h"

enum record_kind {
	R_TEXT, /* const char * */
	R_WORD, /* an enum, by `words` */
	R_U32,
	R_U64,
	R_INT,
	R_I64,
	R_REAL,
	R_BOOL,
	R_DIGEST,  /* struct digest, as hex */
	R_TEXTS,   /* const char ** and its count */
	R_NUMBERS, /* uint32_t * and its count */
	R_LIST,    /* array of structs and its count */
	R_FIXED,   /* array inside the struct and its count */
	R_ONE, /* struct inside the struct; `count` is its bool has_..., false when it is null */
};
#define R_KIND 0xffU
#define R_MAY 0x100U /* absent or null is nothing: NULL, 0, false, none */

struct record_field {
	const char *name;
	unsigned kind;    /* enum record_kind, perhaps | R_MAY */
	size_t at, count; /* offsets in the struct; count: of size_t (lists) or bool (R_ONE) */
	const struct record *of;
	const struct words *words;
	size_t room; /* bytes of the member: what an R_FIXED may hold */
};

struct record {
	const char *what; /* for messages */
	size_t size;      /* of the struct */
	size_t n;         /* fields */
	const struct record_field *field;
	/* NULL, or what the rows cannot say, of a text that is read as one of these */
	int (*check)(const void *m, struct err *err);
};

/* Rows of struct s. c: the count of a list; sub: the struct of its entries. */
/* clang-format off */
#define ROW(s, k, f)            {#f, (k), offsetof(struct s, f), 0, NULL, NULL, 0}
#define ROW_WORD(s, k, f, w)    {#f, (k), offsetof(struct s, f), 0, NULL, &(w), 0}
#define ROW_N(s, k, f, c)       {#f, (k), offsetof(struct s, f), offsetof(struct s, c), NULL, NULL, 0}
#define ROW_OF(s, k, f, c, sub) {#f, (k), offsetof(struct s, f), offsetof(struct s, c), &sub##_record, \
				 NULL, sizeof(((struct s *)0)->f)}
/* s_record, of the rows that follow: static RECORD(...), unless others have such a struct too. */
#define ROWS(...) ((const struct record_field[]){__VA_ARGS__})
#define RECORD(s, check, ...)                                                                      \
	const struct record s##_record = {#s, sizeof(struct s), COUNT(ROWS(__VA_ARGS__)), ROWS(__VA_ARGS__), check}
/* clang-format on */

void record_write(const struct record *r, const void *m, struct buf *out);
/* The member alone, without its name. */
void record_write_value(const struct record_field *f, const void *m, struct js *js);
void record_write_js(const struct record *r, const void *m, struct js *js);
/* Into *m, which is zeroed first. Its strings and lists live in the arena. */
int record_read(const struct record *r, struct arena *a, struct str json, void *m,
                struct err *err) MUST_CHECK;
int record_read_doc(const struct record *r, struct arena *a, const struct doc *d, void *m,
                    struct err *err) MUST_CHECK;

#endif
