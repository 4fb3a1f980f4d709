/*
 * format_dcp.c - torch.distributed.checkpoint: .metadata, a pickle whose _StorageInfo objects say
 * relative_path, offset and length of every stored item, so which .distcp files there are and how
 * long each is; and the .distcp files, chains of torch archives. (torch/distributed/checkpoint/
 * filesystem.py)
 */
#include "base/map.h"
#include "format/pairs.h"
#include "format/parsers.h"
#include "format/pickle.h"

#define LINKS_MAX 1000000 /* archives in one .distcp */

struct metadata {
	unsigned magic;
#define METADATA_MAGIC 0x544d4554U
	struct look *l;
	struct pairs by_place; /* place of a path's text -> number of the file */
	struct map *by_path;   /* number + 1 */
	struct format_need *need;
	size_t n, cap;
	bool full, odd;
};

static size_t file_of(struct metadata *m, struct str path)
{
	size_t i = (size_t)(uintptr_t)map_get(m->by_path, path);
	struct arena *own = m->l->out->facts->own;

	if (i > 0)
		return i - 1;
	if (m->n == m->cap) {
		m->cap = MAX(m->cap * 2, 64);
		m->need = xrealloc(m->need, m->cap * sizeof(*m->need));
	}
	m->need[m->n] = (struct format_need){.path = arena_strz(own, path), .sized = true};
	(void)map_set(m->by_path, path, (void *)(uintptr_t)(m->n + 1));
	return m->n++;
}

static bool stored(void *arg, const struct pickle_value *path, uint64_t offset, uint64_t length)
{
	struct metadata *m = FROM_VOID(struct metadata, arg, METADATA_MAGIC);
	uint64_t file = pairs_get(&m->by_place, path->at), end;

	if (file == PAIRS_NONE) {
		struct str text = pickle_text(m->l, path);

		if (text.n == 0 || text.n >= FORMAT_PATH_MAX || memchr(text.p, 0, text.n) != NULL ||
		    m->n >= FORMAT_NEEDS_MAX) {
			m->full = true;
			return false;
		}
		file = file_of(m, text);
		m->full = !pairs_set(&m->by_place, path->at, file);
		if (m->full)
			return false;
	}
	if (offset > INT64_MAX || length > INT64_MAX ||
	    __builtin_add_overflow(offset, length, &end)) {
		m->odd = true;
		return false;
	}
	m->need[file].size = MAX(m->need[file].size, end);
	m->need[file].tensors++;
	return true;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct format_need *)a)->path, ((const struct format_need *)b)->path);
}

void check_metadata(struct look *l)
{
	struct metadata m = {.magic = METADATA_MAGIC, .l = l, .by_path = map_new()};
	struct pickle_sink sink = {.stored = stored, .arg = &m};
	struct format_facts *facts = look_facts(l, FORMAT_DCP);
	uint64_t at = 0;
	enum pickle_end end = pickle_walk(l, &at, &sink);

	if (m.full)
		look_unknown(l, "names too many files to be checked");
	else if (m.odd)
		look_unknown(l, "names impossible offsets");
	else if (end != PICKLE_STOP)
		pickle_verdict(l, end);
	else if (at != l->size)
		look_unknown(l, "goes on behind its end");
	else
		look_whole(l);
	if (look_is(l, FORMAT_WHOLE) && m.n > 0) {
		struct format_need *all = ARENA_ARRAY(facts->own, struct format_need, m.n);

		qsort(m.need, m.n, sizeof(m.need[0]), by_path);
		memcpy(all, m.need, m.n * sizeof(m.need[0]));
		for (size_t i = 0; i < m.n; i++)
			l->out->tensors += all[i].tensors;
		facts->need = all;
		facts->n_need = m.n;
	}
	free(m.need);
	map_free(m.by_path);
	pairs_done(&m.by_place);
}

/* One archive of the chain, which ends at `end`; *start is where it begins. Says ZIP_NO_END when
 * there is none, and gives no verdict then. */
static enum zip_says check_link(struct look *l, uint64_t end, uint64_t *start)
{
	struct zip_entry e, data;
	struct zip z, all;
	enum zip_says says = zip_open(l, end, false, &z);
	bool found = false;

	all = z;
	for (says = says == ZIP_OK ? zip_next(l, &z, &e) : says; says == ZIP_OK;
	     says = zip_next(l, &z, &e)) {
		says = zip_locate(l, &z, &e);
		if (says != ZIP_OK)
			break;
		if (!found && torch_is_data(&e)) {
			found = true;
			data = e;
		}
	}
	*start = all.start;
	if (says == ZIP_NO_END)
		return says;
	if (says != ZIP_END)
		zip_verdict(l, says);
	else if (found)
		torch_archive(l, &all, &data);
	else
		look_unknown(l, "holds an archive that torch did not write");
	return says;
}

/* From the end to the beginning: each archive says where it begins, and the one before ends there.
 */
void check_distcp(struct look *l)
{
	uint64_t end = l->size, start = 0, n = 0, tensors = 0;

	for (; end > 0 && n < LINKS_MAX; n++) {
		if (check_link(l, end, &start) == ZIP_NO_END) {
			if (n == 0)
				look_torn(l, "no end record");
			else /* other content may lie between */
				look_unknown(l, "is not a chain of torch archives");
			return;
		}
		if (!look_is(l, FORMAT_WHOLE))
			return;
		assert(start < end);
		tensors += l->out->tensors;
		end = start;
	}
	l->out->tensors = tensors;
	if (end > 0)
		look_unknown(l, "holds too many items to be checked");
}
