/*
 * record.h - structs as JSON objects by tables: one row a field, and one writer and one reader for
 * all of them. face/schema.h prints the schema of a record from its rows.
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
	R_ONE,  /* struct inside the struct; `count` is its bool has_..., false when it is null */
	R_PART, /* members of this very struct as an object of their own, `of` */
	/* only written: */
	R_TIME, /* int64_t, in milliseconds: ISO 8601 */
	R_BITS, /* uint64_t: a list of the bits that are set */
	R_SUM,  /* uint64_t: how many bits are set */
	R_DOC,  /* const struct doc *: whatever it says */
};
#define R_KIND 0xffU
#define R_MAY 0x100U /* absent or null is nothing: NULL, 0, false, none */
/* Nothing is written as null, or not at all. Nothing is zero, of an R_PART that its first member is
 * nothing; where `count` is the place of a bool, that says it. */
#define R_NULL 0x200U
#define R_SPARSE 0x400U
#define R_SIGNED 0x800U    /* for the schema: it may be less than zero */
#define R_NEGATIVE 0x1000U /* of an R_I64: nothing is less than zero, and null */

struct record_field {
	const char *name;
	unsigned kind;    /* enum record_kind, perhaps | R_MAY */
	size_t at, count; /* offsets in the struct; count: of a size_t (lists) or a bool */
	const struct record *of;
	const struct words *words;
	size_t room; /* bytes of the member: what an R_FIXED may hold */
};

struct record {
	const char *what; /* for messages; of what is only written: its name for others, or NULL */
	size_t size;      /* of the struct */
	size_t n;         /* fields */
	const struct record_field *field;
	/* NULL, or what the rows cannot say, of a text that is read as one of these */
	int (*check)(const void *m, struct err *err);
};

/* Rows of struct s. c: the count of a list; sub: the struct of its entries; n: the name, where it
 * is not the member's; b: the bool that says whether it is there. */
/* clang-format off */
#define R_AT(s, f) offsetof(struct s, f)
#define ROW(s, k, f)                  ROW_AS(s, k, #f, f)
#define ROW_AS(s, k, n, f)            {n, (k), R_AT(s, f), 0, NULL, NULL, 0}
#define ROW_IF(s, k, n, f, b)         {n, (k) | R_NULL, R_AT(s, f), R_AT(s, b), NULL, NULL, 0}
#define ROW_WORD(s, k, f, w)          {#f, (k), R_AT(s, f), 0, NULL, &(w), 0}
#define ROW_WORD_AS(s, k, n, f, w)    {n, R_WORD | (k), R_AT(s, f), 0, NULL, &(w), 0}
#define ROW_WORD_IF(s, n, f, w, b)    {n, R_WORD | R_NULL, R_AT(s, f), R_AT(s, b), NULL, &(w), 0}
#define ROW_N(s, k, f, c)             {#f, (k), R_AT(s, f), R_AT(s, c), NULL, NULL, 0}
#define ROW_OF(s, k, f, c, sub)       ROW_OF_AS(s, k, #f, f, c, sub)
#define ROW_OF_AS(s, k, n, f, c, sub) {n, (k), R_AT(s, f), R_AT(s, c), &sub##_record, NULL, \
				       sizeof(__typeof__(((struct s *)0)->f))}
#define ROW_PART(k, n, sub)           {n, R_PART | (k), 0, 0, &sub##_record, NULL, 0}
#define ROW_PART_IF(s, n, b, sub)     {n, R_PART | R_NULL, 0, R_AT(s, b), &sub##_record, NULL, 0}
#define ROWS(...) ((const struct record_field[]){__VA_ARGS__})
#define RECORD_OF(name, what, s, check, ...) const struct record name##_record = \
	{what, sizeof(struct s), COUNT(ROWS(__VA_ARGS__)), ROWS(__VA_ARGS__), check}
/* s_record, of the rows that follow: static RECORD(...), unless others have such a struct too. */
#define RECORD(s, check, ...) RECORD_OF(s, #s, s, check, __VA_ARGS__)
/* name_record of struct s, which is only written. */
#define SHOWN(name, what, s, ...) RECORD_OF(name, what, s, NULL, __VA_ARGS__)
/* clang-format on */

void record_write(const struct record *r, const void *m, struct buf *out);
void record_write_js(const struct record *r, const void *m, struct js *js);
/* Its members, into the object that js is in. */
void record_write_members(const struct record *r, const void *m, struct js *js);
void record_write_list(const struct record *r, const void *items, size_t n, struct js *js);
/* The member alone, without its name. */
void record_write_value(const struct record_field *f, const void *m, struct js *js);
bool record_is_nothing(const struct record_field *f, const void *m);
/* Into *m, which is zeroed first. Its strings and lists live in the arena. */
int record_read(const struct record *r, struct arena *a, struct str json, void *m,
                struct err *err) MUST_CHECK;
int record_read_doc(const struct record *r, struct arena *a, const struct doc *d, void *m,
                    struct err *err) MUST_CHECK;

#endif
