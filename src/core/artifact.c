/* artifact.c - see artifact.h. */
#include "core/artifact.h"

#define CCACHE_BYTES 20           /* of a key */
#define CCACHE_HEX ((size_t)40)   /* the key in hex: newer clients */
#define CCACHE_MIXED ((size_t)33) /* two bytes in hex, the others in base 32: older ones */
#define CCACHE_MIXED_HEX ((size_t)4)
#define CCACHE_AS_SHA256 ((size_t)64) /* in hex, and its beginning once more */
#define SHA256_HEX ((size_t)64)

const char *const artifact_kind_word[ARTIFACT_KINDS] = {
	[ARTIFACT_CCACHE] = "ccache",
	[ARTIFACT_ACTION] = "bazel-ac",
	[ARTIFACT_CONTENT] = "bazel-cas",
	[ARTIFACT_FILE] = "file",
};

/* How names begin. */
static const char *const prefix[ARTIFACT_KINDS] = {
	[ARTIFACT_CCACHE] = "ccache/",
	[ARTIFACT_ACTION] = "ac/",
	[ARTIFACT_CONTENT] = "cas/",
	[ARTIFACT_FILE] = "file/",
};

enum artifact_kind artifact_kind_of(const char *name)
{
	for (unsigned k = 0; k < ARTIFACT_KINDS; k++)
		if (str_starts(str_of(name), prefix[k]))
			return (enum artifact_kind)k;
	return ARTIFACT_FILE;
}

static int no_key(struct str path, const char *want, struct err *err)
{
	return err_set(err, ERR_ARTIFACT_KEY, "\"%.*s\" is no key: %s", (int)MIN(path.n, 200),
	               path.p, want);
}

static bool is_hex(struct str s, size_t n)
{
	for (size_t i = 0; i < s.n; i++)
		if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
			return false;
	return s.n == n;
}

/* 0 to 31 of 0-9a-v; -1: none. */
static int base32_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'v' ? c - 'a' + 10 : -1;
}

/* Digits of five bits, the first one highest; what is left over has to be 0. */
static bool base32_decode(struct str s, uint8_t *out, size_t n)
{
	unsigned bits = 0, held = 0;
	size_t at = 0;

	for (size_t i = 0; i < s.n; i++) {
		int d = base32_digit(s.p[i]);

		if (d < 0)
			return false;
		bits = bits << 5 | (unsigned)d;
		held += 5;
		if (held < 8)
			continue;
		held -= 8;
		if (at == n)
			return false;
		out[at++] = (uint8_t)(bits >> held);
		bits &= (1U << held) - 1;
	}
	return at == n && bits == 0;
}

/* The key as hex, however it was written. */
static bool ccache_key(struct str s, char hex[2 * CCACHE_BYTES + 1])
{
	uint8_t key[CCACHE_BYTES];
	struct err no = {0};

	if (is_hex(s, CCACHE_HEX)) {
		memcpy(hex, s.p, s.n);
		hex[s.n] = '\0';
		return true;
	}
	if (s.n != CCACHE_MIXED || !is_hex(str_n(s.p, CCACHE_MIXED_HEX), CCACHE_MIXED_HEX) ||
	    hex_decode(str_n(s.p, CCACHE_MIXED_HEX), key, CCACHE_MIXED_HEX / 2, &no) < 0 ||
	    !base32_decode(str_skip(s, CCACHE_MIXED_HEX), key + CCACHE_MIXED_HEX / 2,
	                   sizeof(key) - CCACHE_MIXED_HEX / 2))
		return false;
	hex_encode(key, sizeof(key), hex);
	return true;
}

int artifact_ccache_name(struct str path, struct artifact_name *out, struct err *err)
{
	char joined[CCACHE_AS_SHA256 + 1], hex[2 * CCACHE_BYTES + 1];
	struct str rest = path, first, key = path;

	*out = (struct artifact_name){.kind = ARTIFACT_CCACHE};
	(void)str_cut(&rest, '/', &first);
	if (str_eq(first, "ac") && is_hex(rest, CCACHE_AS_SHA256) &&
	    memcmp(rest.p, rest.p + CCACHE_HEX, CCACHE_AS_SHA256 - CCACHE_HEX) == 0) {
		key = str_n(rest.p, CCACHE_HEX);
	} else if (first.n == 2 && rest.n + 2 < sizeof(joined)) {
		memcpy(joined, first.p, 2);
		memcpy(joined + 2, rest.p, rest.n);
		key = str_n(joined, rest.n + 2);
	}
	if (!ccache_key(key, hex))
		return no_key(path,
		              "ccache asks for 40 hex digits, whole or cut behind the second, or "
		              "for ac/ and 64 digits",
		              err);
	FMT(out->text, "%s%s", prefix[ARTIFACT_CCACHE], hex);
	return 0;
}

/* Parts that are no dots, of text that a database takes. */
static bool is_plain(struct str path)
{
	struct str part, rest = path;

	if (path.n == 0 || path.n > ARTIFACT_PATH_MAX || !str_is_utf8(path) ||
	    path.p[path.n - 1] == '/')
		return false;
	for (size_t i = 0; i < path.n; i++)
		if ((unsigned char)path.p[i] < ' ' || path.p[i] == 0x7f)
			return false;
	while (str_cut(&rest, '/', &part))
		if (part.n == 0 || str_eq(part, ".") || str_eq(part, ".."))
			return false;
	return true;
}

void artifact_content_name(const struct digest *sha256, struct artifact_name *out)
{
	char hex[HASH_HEX_CAP];

	digest_hex(sha256, hex);
	*out = (struct artifact_name){.kind = ARTIFACT_CONTENT, .sha256 = *sha256};
	FMT(out->text, "%s%s", prefix[ARTIFACT_CONTENT], hex);
}

/* Cuts the last part off. */
static struct str last_part(struct str *path)
{
	struct str last = *path;

	for (size_t i = path->n; i > 0; i--) {
		if (path->p[i - 1] != '/')
			continue;
		last = str_skip(*path, i);
		path->n = i - 1;
		return last;
	}
	path->n = 0;
	return last;
}

int artifact_bazel_name(struct str path, struct artifact_name *out, struct err *err)
{
	static const char want[] = "Bazel asks for ac/ or cas/ and a SHA-256 in 64 hex digits";
	struct str rest = path, hex, which;

	*out = (struct artifact_name){.kind = ARTIFACT_ACTION};
	if (!is_plain(path))
		return no_key(path, want, err);
	hex = last_part(&rest);
	which = last_part(&rest);
	if (!is_hex(hex, SHA256_HEX) || digest_parse(hex, &out->sha256, err) < 0)
		return no_key(path, want, err);
	if (str_eq(which, "cas")) {
		struct digest d = out->sha256;

		artifact_content_name(&d, out);
		return 0;
	}
	if (!str_eq(which, "ac"))
		return no_key(path, want, err);
	FMT(out->text, "%s%.*s%s%.*s", prefix[ARTIFACT_ACTION], STR_ARG(rest),
	    rest.n > 0 ? "/" : "", STR_ARG(hex));
	return 0;
}

int artifact_file_name(struct str path, struct artifact_name *out, struct err *err)
{
	*out = (struct artifact_name){.kind = ARTIFACT_FILE};
	if (!is_plain(path))
		return err_set(err, ERR_ARTIFACT_KEY,
		               "the key is no plain path of at most %d bytes: no empty part, . or "
		               "..; UTF-8, no control characters",
		               ARTIFACT_PATH_MAX);
	FMT(out->text, "%s%.*s", prefix[ARTIFACT_FILE], STR_ARG(path));
	return 0;
}

static int most_last(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

uint64_t artifact_level(uint64_t *takes, size_t n, uint64_t fit)
{
	if (n > 0)
		qsort(takes, n, sizeof(*takes), most_last);
	for (size_t i = 0; i < n; i++) {
		uint64_t share = fit / (n - i);

		if (takes[i] > share)
			return share; /* and so have all that follow */
		fit -= takes[i];
	}
	return UINT64_MAX;
}
