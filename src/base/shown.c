/* shown.c - which characters people can see, and escapes for the others; see shown.h. */
#include "base/shown.h"

/* Unicode's Default_Ignorable_Code_Point, its control characters, its separators of lines and
 * paragraphs, and interlinear annotation. In order. */
static const struct {
	uint32_t first, last;
} unseen[] = {
	{0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},
	{0x61c, 0x61c},     {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},
	{0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},   {0x3164, 0x3164},
	{0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},
	{0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

static bool is_seen(uint32_t code)
{
	for (size_t i = 0; i < COUNT(unseen) && code >= unseen[i].first; i++)
		if (code <= unseen[i].last)
			return false;
	return true;
}

/* Controls, separators of lines and paragraphs, and what Unicode calls Bidi_Control. */
static bool turns(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
	       (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

bool shown_deceives(struct str s)
{
	uint32_t code;

	for (size_t len; s.n > 0; s = str_skip(s, len)) {
		len = str_utf8(s, &code);
		if (len == 0 || turns(code))
			return true;
	}
	return false;
}

size_t shown_len(struct str s)
{
	uint32_t code;
	size_t len = str_utf8(s, &code);

	return len > 0 && is_seen(code) ? len : 0;
}

/* One character that cannot be shown, or one byte that is none. How many bytes it has. */
static size_t escape(struct buf *out, struct str s)
{
	uint32_t code;
	size_t len = str_utf8(s, &code);

	if (len == 0)
		buf_printf(out, "\\x%02x", (unsigned char)s.p[0]);
	else if (code == '\n')
		buf_puts(out, "\\n");
	else if (code == '\t')
		buf_puts(out, "\\t");
	else if (code == '\r')
		buf_puts(out, "\\r");
	else
		buf_printf(out, code > 0xffff ? "\\U%08x" : "\\u%04x", code);
	return MAX(len, (size_t)1);
}

const char *shown_cut(struct str s, char *out, size_t cap)
{
	AUTO_BUF struct buf b = BUF_INIT(SHOWN_GROWTH * s.n);
	size_t n;

	shown_add(&b, s);
	n = MIN(b.n, cap - 1);
	while (n < b.n && n > 0 && ((unsigned char)b.p[n] & 0xc0) == 0x80)
		n--;
	memcpy(out, buf_cstr(&b), n);
	out[n] = '\0';
	return out;
}

void shown_add(struct buf *out, struct str s)
{
	while (s.n > 0) {
		size_t plain = 0, len;

		while ((len = shown_len(str_skip(s, plain))) > 0)
			plain += len;
		buf_str(out, str_n(s.p, plain));
		s = str_skip(s, plain);
		if (s.n > 0)
			s = str_skip(s, escape(out, s));
	}
}
