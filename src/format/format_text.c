/* format_text.c - SentencePiece models, pointers, texts that have nothing to check. */
#include "format/parsers.h"

#define FIELDS_MAX ((uint64_t)16 << 20)
#define POINTER_MAX 256

/* A varint at *at; false: there is none. */
static bool varint(struct look *l, uint64_t *at, uint64_t *v)
{
	*v = 0;
	for (unsigned shift = 0; shift < 64; shift += 7) {
		const uint8_t *p = NULL;

		if (!look_has(l, *at, 1))
			return false;
		p = look_at(l, *at, 1);
		if (p == NULL)
			return false;
		(*at)++;
		*v |= (uint64_t)(*p & 0x7f) << shift;
		if ((*p & 0x80) == 0)
			return true;
	}
	return false;
}

/*
 * A protobuf, ModelProto: pieces = 1 (many), trainer_spec = 2, normalizer_spec = 3, in this order.
 * (sentencepiece_model.proto) The trainer always writes all three, so one that was cut between two
 * pieces lacks the later ones.
 */
void check_sentencepiece(struct look *l)
{
	bool trainer = false, normalizer = false;
	uint64_t at = 0;

	for (uint64_t n = 0; at < l->size; n++) {
		uint64_t tag, len;

		if (n >= FIELDS_MAX) {
			look_unknown(l, "has too many pieces to be checked");
			return;
		}
		if (!varint(l, &at, &tag)) {
			look_torn(l, "ends in the middle");
			return;
		}
		if ((tag & 7) != 2 || tag >> 3 == 0 || tag >> 3 > 200) {
			look_unknown(l, "is not a SentencePiece model");
			return;
		}
		if (!varint(l, &at, &len) || !look_has(l, at, len)) {
			look_torn(l, "ends in the middle");
			return;
		}
		at += len;
		trainer = trainer || tag >> 3 == 2;
		normalizer = normalizer || tag >> 3 == 3;
	}
	if (!trainer || !normalizer)
		look_torn(l, "ends before its %s", trainer ? "normalizer" : "trainer's settings");
	else
		look_whole(l);
}

/* "global_step20", "1000", "release": one line. */
void check_pointer(struct look *l)
{
	struct format_facts *f = NULL;
	const uint8_t *p = NULL;
	struct str text, digits;
	struct err err = {0};
	uint64_t v;

	if (l->size > POINTER_MAX) {
		look_unknown(l, "is too long for a name");
		return;
	}
	p = look_at(l, 0, (size_t)l->size);
	if (p == NULL)
		return;
	text = str_trim(str_n((const char *)p, (size_t)l->size));
	if (text.n == 0 || memchr(text.p, 0, text.n) != NULL) {
		look_torn(l, "names nothing");
		return;
	}
	f = look_facts(l, FORMAT_POINTER);
	f->text = arena_strz(f->own, text);
	for (digits = text; digits.n > 0; digits = str_skip(digits, 1))
		if (str_u64(digits, 0, INT64_MAX, &v, &err) == 0) {
			f->step = (int64_t)v;
			break;
		} else {
			err_clear(&err);
		}
	look_whole(l);
}

void check_text(struct look *l)
{
	look_unknown(l, "is text: nothing to check");
}
