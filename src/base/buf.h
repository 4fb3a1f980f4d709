/*
 * buf.h - borrowed text (struct str) and owned, limited bytes (struct buf).
 *
 * A buf never grows past its limit: an append that would is dropped and `full` sticks, so a writer
 * appends freely and checks once at the end. The bytes are always followed by a NUL that does not
 * count, so p can be handed to libc when the content has no NUL of its own.
 */
#ifndef BUF_H
#define BUF_H

#include "base/err.h"

struct str {
	const char *p;
	size_t n;
};

#define STR_ARG(s) (int)(s).n, (s).p /* for "%.*s" */
#define STR_LIT(s) ((struct str){(s), sizeof(s) - 1})

struct str str_of(const char *s); /* NULL gives the empty str */
struct str str_n(const char *p, size_t n);
bool str_eq(struct str a, const char *b);
bool str_same(struct str a, struct str b);
bool str_starts(struct str s, const char *prefix);
bool str_ends(struct str s, const char *suffix);
bool str_ieq(struct str a, const char *b);   /* ASCII case ignored */
void str_lower(char *s);                     /* A to Z, in place */
struct str str_skip(struct str s, size_t n); /* n is cut to s.n */
struct str str_trim(struct str s);           /* spaces, tabs, CR, LF at both ends */
/* Bytes of the UTF-8 character that s begins with; 0: none (overlong, surrogate, cut short). */
size_t str_utf8_len(struct str s);
size_t str_utf8(struct str s, uint32_t *code); /* the same, with its code point */
bool str_is_utf8(struct str s);
/* The bytes that the first character of s takes, s not being empty. *text: that character, or
 * UTF8_MARK for one byte that begins none. */
size_t str_utf8_mend(struct str s, struct str *text);
#define UTF8_MARK STR_LIT("\xef\xbf\xbd") /* U+FFFD: what cannot be written as it is */
/* Cuts s at the first `sep`: *head is before it, *s what follows; false when s is used up. */
bool str_cut(struct str *s, char sep, struct str *head);
char *str_dup(struct str s) MUST_CHECK; /* heap, NUL-terminated */
/* Decimal, whole text, within [min, max]. */
int str_u64(struct str s, uint64_t min, uint64_t max, uint64_t *out, struct err *err) MUST_CHECK;
int str_i64(struct str s, int64_t min, int64_t max, int64_t *out, struct err *err) MUST_CHECK;
/* Whole text to a fixed array with NUL; ERR_TOO_BIG when it does not fit. `what` names it. */
int str_copy(struct str s, char *out, size_t cap, const char *what, struct err *err) MUST_CHECK;

struct buf {
	char *p; /* NULL until the first byte */
	size_t n, cap, max;
	bool full;
};

#define BUF_INIT(limit)                                                                            \
	{                                                                                          \
		.max = (limit)                                                                     \
	}

void buf_done(struct buf *b);  /* frees, back to empty */
void buf_clear(struct buf *b); /* keeps the memory */
#define AUTO_BUF CLEANUP(buf_done)

void buf_add(struct buf *b, const void *p, size_t n);
void buf_str(struct buf *b, struct str s);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_shell(struct buf *b, const char *text); /* 'text', as one word of a POSIX shell */
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF(2, 3);
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) PRINTF(2, 0);
/* Room for n more bytes at the end, to be filled and then counted with b->n += used; NULL = full.
 */
char *buf_room(struct buf *b, size_t n);
void buf_drop(struct buf *b, size_t n); /* the first n bytes go */
struct str buf_view(const struct buf *b);
const char *buf_cstr(const struct buf *b); /* "" when empty */
/* ERR_TOO_BIG naming `what` when something did not fit. */
int buf_check(const struct buf *b, const char *what, struct err *err) MUST_CHECK;

#endif
