/*
 * base.h - first include of every .c file: libc, attributes, cleanup, allocation that cannot fail,
 * and the functions that nobody here calls.
 */
#ifndef BASE_H
#define BASE_H

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifdef NDEBUG
#error "assertions stay on: NDEBUG is not supported"
#endif

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define UNUSED __attribute__((unused))
#define NORETURN __attribute__((noreturn))
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Name the cleanup of a heap object after its free function: job_free -> job_free_p. */
#define DEFINE_CLEANUP(type, fn)                                                                   \
	static inline void fn##_p(type **p)                                                        \
	{                                                                                          \
		fn(*p);                                                                            \
	}

/* What comes back through a void * is what was given there: its first member is a magic. */
#define FROM_VOID(type, p, word)                                                                   \
	(__extension__({                                                                           \
		type *from_ = (p);                                                                 \
		assert(from_ != NULL && from_->magic == (word));                                   \
		from_;                                                                             \
	}))

/* Move ownership out of a variable that has a cleanup attached. */
#define TAKE(p)                                                                                    \
	(__extension__({                                                                           \
		__typeof__(p) take_ = (p);                                                         \
		(p) = NULL;                                                                        \
		take_;                                                                             \
	}))

/* Same for a file descriptor. */
#define TAKE_FD(fd)                                                                                \
	(__extension__({                                                                           \
		int take_ = (fd);                                                                  \
		(fd) = -1;                                                                         \
		take_;                                                                             \
	}))

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* Small allocations: abort when memory is gone. Sizes that somebody else chose go through buf.h. */
void *xmalloc(size_t n) MUST_CHECK;
void *xcalloc(size_t count, size_t n) MUST_CHECK;
void *xrealloc(void *p, size_t n) MUST_CHECK;
char *xstrdup(const char *s) MUST_CHECK;
char *xstrndup(const char *s, size_t n) MUST_CHECK;
char *xasprintf(const char *fmt, ...) MUST_CHECK PRINTF(1, 2);

/* Print into a fixed array; asserts that it fits (for text whose length we control). */
void fmt_fixed(char *out, size_t cap, const char *fmt, ...) PRINTF(3, 4);
#define FMT(array, ...) fmt_fixed(array, sizeof(array), __VA_ARGS__)

/* Copy text into a fixed array, cut to fit (for text that may be long and is only shown). */
void copy_cut(char *out, size_t cap, const char *text);

static inline void free_p(void *p)
{
	free(*(void **)p);
}

static inline void close_fd_p(const int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

#define AUTO_FREE CLEANUP(free_p)   /* AUTO_FREE char *s = NULL; */
#define AUTO_FD CLEANUP(close_fd_p) /* AUTO_FD int fd = -1; */

#undef alloca /* a macro of <stdlib.h>: it could not be poisoned */
#pragma GCC poison strcpy strcat strncpy strtok atoi atol system popen alloca gets

#endif
