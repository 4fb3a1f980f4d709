/*
 * fuzz_format.h - any bytes as a file of a checkpoint, under a name that leads to one parser: no
 * verdict may depend on how the bytes are read, and where a format has an end, a file that was
 * whole is not whole without its last byte.
 */
#ifndef FUZZ_FORMAT_H
#define FUZZ_FORMAT_H

#include "format/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct fuzz_bytes {
	const uint8_t *p;
	size_t n;
};

static int fuzz_read(void *arg, uint64_t at, void *p, size_t n, struct err *err UNUSED)
{
	const struct fuzz_bytes *b = arg;

	if (n == 0 || n > 65536 || at > b->n || n > b->n - at)
		abort(); /* against the contract */
	memcpy(p, b->p + at, n);
	return 0;
}

static void fuzz_check(const char *name, const uint8_t *data, size_t n, struct format_result *r)
{
	struct fuzz_bytes b = {data, n};
	struct format_source src = {.name = name, .size = n, .read = fuzz_read, .arg = &b};
	struct err err = {0};

	if (format_check(&src, r, &err) < 0)
		abort();
	if (r->bytes_read > FORMAT_READ_MAX || (r->verdict == FORMAT_TORN && r->reason[0] == '\0'))
		abort();
	for (size_t i = 0; r->facts != NULL && i < r->facts->n_need; i++)
		if (r->facts->need[i].path[0] == '\0' ||
		    (i > 0 && strcmp(r->facts->need[i - 1].path, r->facts->need[i].path) >= 0))
			abort();
}

/* ends: the format whose files have an end; NULL = none. */
static int fuzz_format(const char *name, const char *ends, const uint8_t *data, size_t n)
{
	AUTO_FORMAT struct format_result a = {0}, b = {0};

	fuzz_check(name, data, n, &a);
	if (ends == NULL || strcmp(a.format, ends) != 0 || a.verdict != FORMAT_WHOLE)
		return 0;
	fuzz_check(name, data, n - 1, &b);
	if (b.verdict == FORMAT_WHOLE)
		abort();
	return 0;
}

#endif
