/*
 * format_torch.c - what torch.save writes: a zip archive whose data.pkl names the storages beside
 * it, or, in the old form, five pickles and the storages behind them; and any other pickle.
 *
 * A storage is named by a persistent id, ("storage", class, key, device, count); in an archive its
 * bytes are the entry <prefix>/data/<key>. (torch/serialization.py, _save and _legacy_save)
 */
#include "format/pairs.h"
#include "format/parsers.h"
#include "format/pickle.h"

#define LEGACY_PICKLES 5
#define MAGIC_N 10
#define PICKLES_MAX 1000000 /* one behind the other in one file */

/* One storage's key as a number: most are decimal. */
static uint64_t key_of(struct str key)
{
	uint64_t v = 0;

	if (key.n == 0 || key.n > 18)
		return pairs_key(key) | (uint64_t)1 << 63;
	for (size_t i = 0; i < key.n; i++) {
		if (key.p[i] < '0' || key.p[i] > '9' || (i == 0 && key.p[i] == '0' && key.n > 1))
			return pairs_key(key) | (uint64_t)1 << 63;
		v = v * 10 + (uint64_t)(key.p[i] - '0');
	}
	return v;
}

bool torch_is_data(const struct zip_entry *e)
{
	const char *slash = memchr(e->name, '/', e->name_n);

	return slash != NULL && strcmp(slash, "/data.pkl") == 0;
}

struct storages {
	unsigned magic;
#define STORAGES_MAGIC 0x5453544fU
	struct look *l;
	struct pairs have;         /* key -> bytes that are there */
	struct pairs want;         /* key -> bytes, or item size in the old form */
	uint64_t n, missing, part; /* part: bytes are lacking */
	bool full;
};

/* Reads a persistent id: its key, and the number of bytes that it refers to (0 = any). */
static bool read_id(struct storages *st, const struct pickle_value *item, size_t n, uint64_t *key,
                    uint64_t *each, uint64_t *bytes)
{
	struct str text;

	if (n < 5 || item[2].kind != PICKLE_TEXT)
		return false;
	text = pickle_text(st->l, &item[2]);
	if (text.p == NULL)
		return false;
	*key = key_of(text);
	*each = pickle_item_bytes(&item[1]);
	*bytes = 0;
	if (item[4].kind == PICKLE_NUMBER && *each > 0 &&
	    __builtin_mul_overflow(item[4].at, *each, bytes))
		*bytes = UINT64_MAX - 1;
	return true;
}

static bool in_archive(void *arg, const struct pickle_value item[PICKLE_ITEMS], size_t n)
{
	struct storages *st = FROM_VOID(struct storages, arg, STORAGES_MAGIC);
	uint64_t key, each, bytes, there;

	if (!read_id(st, item, n, &key, &each, &bytes))
		return !st->l->failed && !st->l->over;
	if (pairs_get(&st->want, key) != PAIRS_NONE)
		return true;
	if (!pairs_set(&st->want, key, bytes)) {
		st->full = true;
		return false;
	}
	st->n++;
	there = pairs_get(&st->have, key);
	if (there == PAIRS_NONE)
		st->missing++;
	else if (there < bytes)
		st->part++;
	return true;
}

/* The entries <prefix>data/<key> and their sizes. */
static bool list_storages(struct look *l, struct zip z, struct str prefix, struct pairs *have)
{
	struct zip_entry e;
	enum zip_says says;

	for (says = zip_next(l, &z, &e); says == ZIP_OK; says = zip_next(l, &z, &e)) {
		struct str name = str_n(e.name, e.name_n);

		if (name.n < prefix.n || memcmp(name.p, prefix.p, prefix.n) != 0)
			continue;
		name = str_skip(name, prefix.n);
		if (str_starts(name, "data/") &&
		    !pairs_set(have, key_of(str_skip(name, 5)), e.size))
			return false;
	}
	return true;
}

static void judge(struct storages *st, enum pickle_end end, bool at_end)
{
	struct look *l = st->l;

	l->out->tensors = st->n;
	if (st->full)
		look_unknown(l, "has too many tensors to be checked");
	else if (end != PICKLE_STOP)
		pickle_verdict(l, end);
	else if (st->missing > 0)
		look_torn(l, "lacks %" PRIu64 " of %" PRIu64 " tensors", st->missing, st->n);
	else if (st->part > 0)
		look_torn(l, "lacks bytes of %" PRIu64 " of %" PRIu64 " tensors", st->part, st->n);
	else if (!at_end)
		look_unknown(l, "its data.pkl goes on behind its end");
	else
		look_whole(l);
}

void torch_archive(struct look *l, const struct zip *z, const struct zip_entry *data)
{
	struct storages st = {.magic = STORAGES_MAGIC, .l = l};
	struct pickle_sink sink = {.persistent = in_archive, .arg = &st};
	struct str prefix = str_n(data->name, data->name_n - strlen("data.pkl"));
	struct look_place was;
	enum pickle_end end;
	uint64_t at = 0;

	if (data->method != 0 || (data->flags & 1) != 0 || data->size != data->packed) {
		look_unknown(l, "its data.pkl is compressed");
		return;
	}
	st.full = !list_storages(l, *z, prefix, &st.have);
	was = look_part(l, data->data_at, data->size, l->name);
	end = st.full ? PICKLE_LIMIT : pickle_walk(l, &at, &sink);
	judge(&st, end, at == l->size);
	look_back(l, was);
	pairs_done(&st.have);
	pairs_done(&st.want);
}

/* ---- the old form: magic, version, system, object, keys, then each storage ---- */

struct legacy {
	unsigned magic;
#define LEGACY_MAGIC 0x544c4547U
	struct storages st;
	uint64_t *order; /* keys, in the order of their bytes */
	size_t n, cap;
};

static bool in_legacy(void *arg, const struct pickle_value item[PICKLE_ITEMS], size_t n)
{
	struct legacy *g = FROM_VOID(struct legacy, arg, LEGACY_MAGIC);
	uint64_t key, each, bytes;

	if (!read_id(&g->st, item, n, &key, &each, &bytes))
		return !g->st.l->failed && !g->st.l->over;
	g->st.n += pairs_get(&g->st.want, key) == PAIRS_NONE;
	if (!pairs_set(&g->st.want, key, each))
		g->st.full = true;
	return !g->st.full;
}

static bool legacy_key(void *arg, const struct pickle_value *text)
{
	struct legacy *g = FROM_VOID(struct legacy, arg, LEGACY_MAGIC);
	struct str key = pickle_text(g->st.l, text);

	if (key.p == NULL)
		return false;
	if (g->n == g->cap) {
		if (g->n >= PAIRS_MAX) {
			g->st.full = true;
			return false;
		}
		g->cap = MAX(g->cap * 2, 64);
		g->order = xrealloc(g->order, g->cap * sizeof(*g->order));
	}
	g->order[g->n++] = key_of(key);
	return true;
}

/* u64 count, count items; one after the other to the end. */
static void legacy_data(struct legacy *g, uint64_t at)
{
	struct look *l = g->st.l;

	l->out->tensors = g->n;
	for (size_t i = 0; i < g->n; i++) {
		uint64_t each = pairs_get(&g->st.want, g->order[i]), count, bytes;

		if (each == PAIRS_NONE || each == 0) {
			look_unknown(l, "has a type of tensor that is not known");
			return;
		}
		if (!look_has(l, at, 8)) {
			look_torn(l, "lacks %zu of %zu tensors", g->n - i, g->n);
			return;
		}
		if (!look_u64(l, at, &count))
			return;
		at += 8;
		if (__builtin_mul_overflow(count, each, &bytes) || !look_has(l, at, bytes)) {
			look_torn(l, "lacks %zu of %zu tensors", g->n - i, g->n);
			return;
		}
		at += bytes;
	}
	if (g->st.n > g->n)
		look_unknown(l, "its list of tensors does not fit its object");
	else if (at < l->size)
		look_unknown(l, "goes on behind its end");
	else
		look_whole(l);
}

void check_torch_legacy(struct look *l)
{
	struct legacy g = {.magic = LEGACY_MAGIC, .st = {.magic = STORAGES_MAGIC, .l = l}};
	enum pickle_end end = PICKLE_STOP;
	uint64_t at = 0;

	for (size_t i = 0; i < LEGACY_PICKLES && end == PICKLE_STOP; i++) {
		struct pickle_sink sink = {.arg = &g};

		if (i == 3)
			sink.persistent = in_legacy;
		if (i == 4)
			sink.text = legacy_key;
		end = pickle_walk(l, &at, &sink);
	}
	if (g.st.full)
		look_unknown(l, "has too many tensors to be checked");
	else if (end == PICKLE_STOP)
		legacy_data(&g, at);
	else
		pickle_verdict(l, end);
	pairs_done(&g.st.want);
	free(g.order);
}

/* Any other pickle, or several one behind the other. */
void check_pickle(struct look *l)
{
	struct pickle_sink sink = {0};
	uint64_t at = 0;

	for (size_t n = 0; n < PICKLES_MAX; n++) {
		enum pickle_end end = pickle_walk(l, &at, &sink);
		const uint8_t *p = NULL;

		if (end != PICKLE_STOP) {
			pickle_verdict(l, end);
			return;
		}
		if (at == l->size) {
			look_whole(l);
			return;
		}
		p = look_at(l, at, 1);
		if (p == NULL)
			return;
		if (*p != 0x80) {
			look_unknown(l, "goes on behind its end");
			return;
		}
	}
	look_unknown(l, "is too long a row of pickles");
}
