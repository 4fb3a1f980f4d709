/* zip.c - the structure of a zip archive; see zip.h. */
#include "format/zip.h"

#define SIG_LOCAL 0x04034b50u
#define SIG_DIR 0x02014b50u
#define SIG_END 0x06054b50u
#define SIG_END64 0x06064b50u
#define SIG_WHERE64 0x07064b50u
#define END_N ((size_t)22)
#define END64_N ((size_t)56)
#define WHERE64_N ((size_t)20)
#define DIR_N ((size_t)46)
#define LOCAL_N ((size_t)30)

/* The end record that is nearest to `end`, and whose comment ends there. */
static enum zip_says find_end(struct look *l, uint64_t end, bool comment, uint64_t *at)
{
	uint64_t most = MIN(end, (uint64_t)END_N + (comment ? ZIP_COMMENT_MAX : 0));

	/* from the back, a window at a time, so that the usual one costs a few bytes */
	for (uint64_t back = END_N; back <= most;) {
		size_t n = (size_t)MIN(most - back + END_N, back == END_N ? END_N : LOOK_WINDOW);
		const uint8_t *p = look_at(l, end - back - (n - END_N), n);

		if (p == NULL)
			return ZIP_GONE;
		for (size_t i = n - END_N + 1; i-- > 0; back++) {
			if (le32(p + i) == SIG_END && le16(p + i + 20) == back - END_N) {
				*at = end - back;
				return ZIP_OK;
			}
		}
	}
	return ZIP_NO_END;
}

/* The zip64 record in front of the end record at end_at. Says ZIP_END when there is none. */
static enum zip_says open_64(struct look *l, uint64_t end_at, struct zip *z)
{
	const uint8_t *p = NULL;
	uint64_t at64, dir_n, dir_off;

	if (end_at < WHERE64_N + END64_N)
		return ZIP_END;
	p = look_at(l, end_at - WHERE64_N, WHERE64_N);
	if (p == NULL)
		return ZIP_GONE;
	if (le32(p) != SIG_WHERE64)
		return ZIP_END;
	at64 = le64(p + 8);
	p = look_at(l, end_at - WHERE64_N - END64_N, END64_N);
	if (p == NULL)
		return ZIP_GONE;
	if (le32(p) != SIG_END64 || le64(p + 4) != END64_N - 12 ||
	    at64 > end_at - WHERE64_N - END64_N)
		return ZIP_BAD; /* with extensions: nobody writes them */
	z->start = end_at - WHERE64_N - END64_N - at64;
	z->entries = le64(p + 32);
	dir_n = le64(p + 40);
	dir_off = le64(p + 48);
	if (dir_n > at64 || dir_off > at64 - dir_n)
		return ZIP_BAD;
	z->dir_at = z->start + dir_off;
	z->dir_end = z->dir_at + dir_n;
	return ZIP_OK;
}

enum zip_says zip_open(struct look *l, uint64_t end, bool comment, struct zip *z)
{
	const uint8_t *p = NULL;
	enum zip_says says;
	uint64_t end_at, dir_n, dir_off;

	memset(z, 0, sizeof(*z));
	if (end < END_N)
		return ZIP_NO_END;
	says = find_end(l, end, comment, &end_at);
	if (says != ZIP_OK)
		return says;
	says = open_64(l, end_at, z);
	if (says == ZIP_END) {
		p = look_at(l, end_at, END_N);
		if (p == NULL)
			return ZIP_GONE;
		z->entries = le16(p + 10);
		dir_n = le32(p + 12);
		dir_off = le32(p + 16);
		if (dir_n > end_at || dir_off > end_at - dir_n)
			return ZIP_BAD;
		z->dir_end = end_at;
		z->dir_at = end_at - dir_n;
		z->start = z->dir_at - dir_off;
		says = ZIP_OK;
	}
	if (says == ZIP_OK && z->entries > ZIP_ENTRIES_MAX)
		return ZIP_BAD;
	z->at = z->dir_at;
	return says;
}

/* 64-bit values stand in an extra field, in this order, where the 32-bit ones are all ones. */
static bool read_extra(const uint8_t *p, size_t n, struct zip_entry *e)
{
	uint64_t *const wide[] = {&e->size, &e->packed, &e->local_at};
	bool any = false;

	for (size_t i = 0; i < COUNT(wide); i++)
		any = any || *wide[i] == UINT32_MAX;
	while (any && n >= 4) {
		size_t len = le16(p + 2), at = 4;

		if (len > n - 4)
			return false;
		if (le16(p) == 1) {
			for (size_t i = 0; i < COUNT(wide); i++) {
				if (*wide[i] != UINT32_MAX)
					continue;
				if (len < 8)
					return false;
				*wide[i] = le64(p + at);
				at += 8;
				len -= 8;
			}
			return true;
		}
		p += 4 + len;
		n -= 4 + len;
	}
	return !any;
}

enum zip_says zip_next(struct look *l, struct zip *z, struct zip_entry *e)
{
	const uint8_t *p = NULL;
	size_t name_n, extra_n, comment_n;
	uint64_t whole;

	if (z->seen == z->entries)
		return z->at == z->dir_end ? ZIP_END : ZIP_BAD;
	if (z->dir_end - z->at < DIR_N)
		return ZIP_BAD;
	p = look_at(l, z->at, DIR_N);
	if (p == NULL)
		return ZIP_GONE;
	if (le32(p) != SIG_DIR)
		return look_zeros(p, 4) ? ZIP_TORN : ZIP_BAD;
	e->flags = le16(p + 8);
	e->method = le16(p + 10);
	e->crc = le32(p + 16);
	e->packed = le32(p + 20);
	e->size = le32(p + 24);
	e->local_at = le32(p + 42);
	name_n = le16(p + 28);
	extra_n = le16(p + 30);
	comment_n = le16(p + 32);
	whole = (uint64_t)DIR_N + name_n + extra_n + comment_n;
	if (z->dir_end - z->at < whole || name_n + extra_n > LOOK_WINDOW)
		return ZIP_BAD;
	p = look_at(l, z->at + DIR_N, name_n + extra_n);
	if (p == NULL)
		return ZIP_GONE;
	e->name_n = MIN(name_n, (size_t)ZIP_NAME_MAX);
	memcpy(e->name, p, e->name_n);
	e->name[e->name_n] = '\0';
	if (!read_extra(p + name_n, extra_n, e) || e->local_at > z->dir_at - z->start)
		return ZIP_BAD;
	e->local_at += z->start;
	z->at += whole;
	z->seen++;
	return ZIP_OK;
}

enum zip_says zip_locate(struct look *l, const struct zip *z, struct zip_entry *e)
{
	const uint8_t *p = NULL;
	uint64_t room = z->dir_at - e->local_at, head;

	if (room < LOCAL_N)
		return ZIP_TORN;
	p = look_at(l, e->local_at, LOCAL_N);
	if (p == NULL)
		return ZIP_GONE;
	if (le32(p) != SIG_LOCAL)
		return ZIP_TORN;
	head = (uint64_t)LOCAL_N + le16(p + 26) + le16(p + 28);
	if (room < head || room - head < e->packed)
		return ZIP_TORN;
	e->data_at = e->local_at + head;
	return ZIP_OK;
}

void zip_verdict(struct look *l, enum zip_says says)
{
	if (says == ZIP_NO_END)
		look_torn(l, "no end record");
	else if (says == ZIP_TORN)
		look_torn(l, "its directory names bytes that are not there");
	else if (says == ZIP_BAD)
		look_unknown(l, "is not a zip archive as it should be");
}
