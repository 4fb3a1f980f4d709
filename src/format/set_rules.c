/*
 * set_rules.c - what a set must have: what indexes, .metadata and hashes name, numbers without
 * gaps, the parts that belong together.
 */
#include "format/pairs.h"
#include "format/set_work.h"

#define SERIES_MAX ((uint64_t)100000) /* numbers of one series that are looked for */

static const struct format_facts *facts_of(const struct member *m, enum format_role role)
{
	const struct format_facts *f = m->check->facts;

	return f != NULL && f->role == role && m->check->verdict == FORMAT_WHOLE ? f : NULL;
}

/* ---- what is named by an index or .metadata, and what is left over of an older save ---- */

static void mark_named(struct work *w)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct format_facts *f = w->m[i].check->facts;

		if (f == NULL || w->m[i].check->verdict != FORMAT_WHOLE ||
		    (f->role != FORMAT_INDEX && f->role != FORMAT_DCP))
			continue;
		for (size_t k = 0; k < f->n_need; k++) {
			struct member *m = work_find(w, w->m[i].folder, f->need[k].path);

			if (m != NULL)
				m->named = true;
		}
	}
}

/* A folder and how the names of its files end, as one text; empty when they end in nothing. */
static struct str folder_and_end(struct work *w, struct str folder, struct str name)
{
	const char *dot = memrchr(name.p, '.', name.n);

	if (dot == NULL)
		return str_n(NULL, 0);
	return str_of(arena_printf(w->a, "%.*s/%.*s", (int)folder.n, folder.n == 0 ? "" : folder.p,
	                           (int)(name.n - (size_t)(dot - name.p)), dot));
}

/* Notes which file name endings the indexes of each folder list. */
static void note_indexed(struct work *w, struct map *indexed)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct format_facts *f = facts_of(&w->m[i], FORMAT_INDEX);

		if (f != NULL && f->n_need > 0)
			(void)map_set(indexed,
			              folder_and_end(w, w->m[i].folder, str_of(f->need[0].path)),
			              w);
	}
}

static bool has_metadata(const struct work *w, struct str folder)
{
	const struct member *m = work_find(w, folder, ".metadata");

	return m != NULL && facts_of(m, FORMAT_DCP) != NULL;
}

static void mark_leftovers(struct work *w)
{
	AUTO_MAP struct map *indexed = map_new();

	note_indexed(w, indexed);
	for (size_t i = 0; i < w->n; i++) {
		struct member *m = &w->m[i];

		if (m->named)
			continue;
		if (str_ends(m->name, ".distcp"))
			m->leftover = has_metadata(w, m->folder);
		else if (map_count(indexed) > 0 && name_match("*-#-of-#.*", m->name, NULL))
			m->leftover =
				map_get(indexed, folder_and_end(w, m->folder, m->name)) != NULL;
		if (!m->leftover)
			continue;
		if (w->out->n_leftovers < SET_SHOWN_MAX)
			w->out->leftover[w->out->n_leftovers] = m->file->path;
		w->out->n_leftovers++;
	}
}

static void rule_torn(struct work *w)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->m[i].check->verdict == FORMAT_TORN && !w->m[i].leftover)
			work_problem(w, SET_FAULT_TORN, w->m[i].file->path, "%s",
			             w->m[i].check->reason);
}

static void rule_index(struct work *w)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct format_facts *f = facts_of(&w->m[i], FORMAT_INDEX);

		for (size_t k = 0; f != NULL && k < f->n_need; k++) {
			const struct format_need *n = &f->need[k];
			const struct member *m = work_find(w, w->m[i].folder, n->path);

			/* that it is there is no proof that it is all there */
			w->open_end =
				w->open_end || (m != NULL && m->check->verdict != FORMAT_WHOLE);
			if (m == NULL)
				work_missing(w, work_join(w, w->m[i].folder, n->path));
			else if (strcmp(m->check->format, "safetensors") == 0 &&
			         m->check->verdict == FORMAT_WHOLE &&
			         m->check->tensors < n->tensors)
				work_problem(w, SET_FAULT_SIZE, m->file->path,
				             "holds %" PRIu64 " of the %" PRIu64
				             " tensors that the index names",
				             m->check->tensors, n->tensors);
		}
		w->indexes += f != NULL && f->n_need > 0;
	}
}

static void rule_metadata(struct work *w)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct format_facts *f = facts_of(&w->m[i], FORMAT_DCP);

		for (size_t k = 0; f != NULL && k < f->n_need; k++) {
			const struct format_need *n = &f->need[k];
			const struct member *m = work_find(w, w->m[i].folder, n->path);

			if (m == NULL)
				work_missing(w, work_join(w, w->m[i].folder, n->path));
			else if (m->file->size != n->size)
				work_problem(w, SET_FAULT_SIZE, m->file->path,
				             "has %" PRIu64 " of the %" PRIu64
				             " bytes that .metadata says",
				             m->file->size, n->size);
		}
		if (f != NULL) {
			w->dcp = true;
			w->shards += f->n_need;
		}
	}
}

/* A folder of .distcp files without the file that says what they are: not where the layout waits
 * for that file anyway. */
static void rule_no_metadata(struct work *w)
{
	struct str last = {0};
	bool any = false;

	for (size_t i = 0; i < w->n; i++) {
		const struct member *m = &w->m[i];
		char *path = NULL;

		if (!str_ends(m->name, ".distcp") || (any && str_same(last, m->folder)))
			continue;
		any = true;
		last = m->folder;
		if (work_find(w, m->folder, ".metadata") != NULL ||
		    strcmp(w->out->layout->id, "dcp_ranks") == 0)
			continue;
		path = work_join(w, m->folder, ".metadata");
		if (w->out->layout->last == NULL || strcmp(w->out->layout->last, path) != 0)
			work_missing(w, path);
	}
}

static void rule_hashes(struct work *w)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct format_facts *f = facts_of(&w->m[i], FORMAT_INTEGRITY);

		for (size_t k = 0; f != NULL && k < f->n_need; k++) {
			const struct format_need *n = &f->need[k];
			const struct member *m = work_find(w, w->m[i].folder, n->path);

			w->hashes++;
			if (m == NULL)
				work_missing(w, work_join(w, w->m[i].folder, n->path));
			else if (m->file->sha256 == NULL || !n->hashed)
				continue;
			else if (digest_same(m->file->sha256, &n->sha256))
				w->hashes_right++;
			else
				work_problem(w, SET_FAULT_CONTENT, m->file->path,
				             "is not the file that integrity.json names");
		}
	}
}

/* A component of a pipeline is a folder with something in it. */
static void rule_pipeline(struct work *w)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct format_facts *f = facts_of(&w->m[i], FORMAT_PIPELINE);

		for (size_t k = 0; f != NULL && k < f->n_need; k++) {
			char *path = work_join(w, w->m[i].folder, f->need[k].path);

			if (!work_has_folder(w, str_n(path, strlen(path) - 1)))
				work_missing(w, path);
		}
	}
}

/* ---- series: files whose names differ in a number ---- */

enum count {
	GAPLESS, /* from the first to the highest that is there */
	RANKS,   /* of every rank: as many as the job has, if that is known */
	OF,      /* as many as another number of the name says */
};

static const struct numbered {
	const char *pattern; /* of the name, or of its last two parts when it has a '/' */
	unsigned which, of;  /* numbers of the pattern */
	uint64_t first;
	enum count count;
	const char
		*layout; /* only there: elsewhere such a number may be a step's. NULL = anywhere */
} numbered[] = {
	{"*-#-of-#.*", 0, 1, 1, OF, NULL},
	{"*-#-of-#", 0, 1, 1, OF, NULL},
	{"*_world_size_#_rank_#.*", 1, 0, 0, OF, NULL},
	{"rng_state_#.pth", 0, 0, 0, RANKS, NULL},
	{"random_states_#.pkl", 0, 0, 0, RANKS, NULL},
	{"pytorch_model_fsdp_#_rank#.bin", 1, 0, 0, RANKS, NULL},
	{"optimizer_#_rank#.bin", 1, 0, 0, RANKS, NULL},
	{"dataloader/rank_#.pt", 0, 0, 0, RANKS, NULL},
	{"train/rank#.pt", 0, 0, 0, RANKS, NULL},
	{"__#.metadata", 0, 0, 0, RANKS, NULL},
	{"*__#_#.distcp", 1, 0, 0, GAPLESS, NULL},
	{"optimizer_#.bin", 0, 0, 1, GAPLESS, "accelerate"},
	{"scheduler_#.bin", 0, 0, 1, GAPLESS, "accelerate"},
	{"model_#.safetensors", 0, 0, 1, GAPLESS, "accelerate"},
	{"custom_checkpoint_#.pkl", 0, 0, 0, GAPLESS, "accelerate"},
};

struct series {
	unsigned magic;
#define SERIES_MAGIC 0x54534552U
	const struct numbered *as;
	struct str example; /* a path, and where its number is */
	size_t at, n;
	uint64_t most, count, of;
	struct pairs seen;
};

/* The last `parts` parts of a path. */
static struct str tail(struct str path, bool two)
{
	struct str name = name_base(path), folder = name_folder(path);

	if (!two || folder.n == 0)
		return name;
	return str_skip(path, (size_t)(name_base(folder).p - path.p));
}

static void add_number(struct work *w, struct map *all, const struct member *m,
                       const struct numbered *as, const struct name_number *num, size_t shift)
{
	size_t at = num[as->which].at + shift, end = at + num[as->which].n;
	struct str key =
		str_of(arena_printf(w->a, "%zu %.*s#%.*s", (size_t)(as - numbered), (int)at,
	                            m->path.p, (int)(m->path.n - end), m->path.p + end));
	struct series *s = map_get(all, key);
	uint64_t v = num[as->which].v;

	w->open_end = w->open_end || (as->count == OF && m->check->verdict != FORMAT_WHOLE);
	if (s == NULL) {
		s = ARENA_NEW(w->a, struct series);
		s->magic = SERIES_MAGIC;
		s->as = as;
		s->example = m->path;
		s->at = at;
		s->n = num[as->which].n;
		s->of = as->count == OF ? num[as->of].v : 0;
		(void)map_set(all, key, s);
	}
	if (pairs_get(&s->seen, v) == PAIRS_NONE && pairs_set(&s->seen, v, 1)) {
		s->count++;
		s->most = MAX(s->most, v);
	}
}

static void say_gap(struct work *w, const struct series *s, uint64_t v)
{
	struct str e = s->example;

	work_missing(w, arena_printf(w->a, "%.*s%0*" PRIu64 "%.*s", (int)s->at, e.p, (int)s->n, v,
	                             (int)(e.n - s->at - s->n), e.p + s->at + s->n));
}

static void look_for_gaps(struct str key UNUSED, void *value, void *arg)
{
	struct series *s = FROM_VOID(struct series, value, SERIES_MAGIC);
	struct work *w = FROM_VOID(struct work, arg, WORK_MAGIC);
	uint64_t upto = s->most + 1, first = s->as->first;

	if (s->as->count == OF) {
		/* data-00000-of-00010: some count from 0 */
		first = pairs_get(&s->seen, 0) != PAIRS_NONE ? 0 : first;
		upto = first + s->of;
		w->splits += s->count == s->of ? s->of : 0;
		if (s->as->first == 0) /* of ranks */
			w->out->ranks = (uint32_t)MIN(s->of, UINT32_MAX);
	} else if (s->as->count == RANKS && w->q->world > 0) {
		upto = MAX(upto, w->q->world);
		w->out->ranks = w->q->world;
	} else if (s->as->count == RANKS) {
		w->open_end = true;
	}
	for (uint64_t v = first; v < MIN(upto, SERIES_MAX); v++)
		if (pairs_get(&s->seen, v) == PAIRS_NONE)
			say_gap(w, s, v);
	pairs_done(&s->seen);
}

static void rule_series(struct work *w)
{
	AUTO_MAP struct map *all = map_new();

	for (size_t i = 0; i < w->n; i++) {
		const struct member *m = &w->m[i];

		if (m->named || m->leftover)
			continue; /* an index knows better */
		for (size_t k = 0; k < COUNT(numbered); k++) {
			const struct numbered *as = &numbered[k];
			struct name_number num[NAME_NUMBERS];
			struct str name = tail(m->path, strchr(as->pattern, '/') != NULL);

			if (!name_match(as->pattern, name, num) ||
			    (as->layout != NULL && strcmp(as->layout, w->out->layout->id) != 0))
				continue;
			add_number(w, all, m, as, num, (size_t)(name.p - m->path.p));
			break;
		}
	}
	map_each(all, look_for_gaps, w);
}

/* GGUF files say themselves of how many they are one. */
static void rule_splits(struct work *w)
{
	AUTO_PAIRS struct pairs here = {0}; /* folder and number of splits -> files */

	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < w->n; i++) {
			const struct member *m = &w->m[i];
			uint64_t key = pairs_key(m->folder) * 31 + m->check->splits, n;

			if (m->check->splits < 2 || name_match("*-#-of-#.gguf", m->name, NULL))
				continue;
			n = pairs_get(&here, key);
			n = n == PAIRS_NONE ? 0 : n;
			if (round == 0 && !pairs_set(&here, key, n + 1))
				return;
			if (round == 1 && m->check->split_no == 0 && n < m->check->splits &&
			    !w->q->part)
				work_problem(w, SET_FAULT_MISSING, m->file->path,
				             "is one of %" PRIu32 " splits, and %" PRIu64
				             " are here",
				             m->check->splits, n);
		}
	}
}

/* ---- DeepSpeed ---- */

struct ds {
	struct str folder;
	uint64_t ranks, models, zero3; /* highest + 1, of each kind of name */
	size_t optim, model, model3;   /* how many files */
	bool pipe, expert, bf16;
};

static void ds_note(struct ds *d, struct str name)
{
	struct name_number num[NAME_NUMBERS];

	if (name_match("*zero_pp_rank_#_mp_rank_#_optim_states.pt", name, num)) {
		d->ranks = MAX(d->ranks, num[0].v + 1);
		d->models = MAX(d->models, num[1].v + 1);
		d->bf16 = d->bf16 || str_starts(name, "bf16_");
		d->expert = d->expert || str_starts(name, "expp_");
		d->optim++;
	} else if (name_match("zero_pp_rank_#_mp_rank_#_model_states.pt", name, num)) {
		d->zero3 = MAX(d->zero3, num[0].v + 1);
		d->models = MAX(d->models, num[1].v + 1);
		d->model3++;
	} else if (name_match("mp_rank_#_model_states.pt", name, num)) {
		d->models = MAX(d->models, num[0].v + 1);
		d->model++;
	}
	d->pipe = d->pipe || name_match("layer_#-*model_states.pt", name, NULL);
	d->expert = d->expert || name_match("*expert_#_mp_rank_#_*", name, NULL);
}

/* Each of the names rank × model part, when the kind is there at all. */
static void ds_grid(struct work *w, const struct ds *d, const char *form, uint64_t ranks)
{
	for (uint64_t r = 0; r < MIN(ranks, SERIES_MAX); r++)
		for (uint64_t m = 0; m < MIN(d->models, SERIES_MAX / MAX(ranks, 1)); m++) {
			char name[100];

			FMT(name, "%s%" PRIu64 "_mp_rank_%02" PRIu64 "_%s_states.pt",
			    strcmp(form, "model") != 0 && d->bf16 ? "bf16_zero_pp_rank_"
			                                          : "zero_pp_rank_",
			    r, m, form);
			if (work_find(w, d->folder, name) == NULL)
				work_missing(w, work_join(w, d->folder, name));
		}
}

static void ds_judge(struct work *w, const struct ds *d)
{
	uint64_t ranks = MAX(d->ranks, d->zero3);
	bool grid = !d->pipe && !d->expert;
	char name[60];

	/* without pipeline or experts, every rank is one of ranks × model parts */
	if (grid && w->q->world > 0 && d->models > 0 && w->q->world % d->models == 0 &&
	    (d->optim > 0 || d->model3 > 0)) {
		ranks = MAX(ranks, w->q->world / d->models);
		w->out->ranks = w->q->world;
	} else if (w->q->world == 0 || !grid) {
		w->open_end = true;
	}
	if (d->optim > 0 && grid)
		ds_grid(w, d, "optim", ranks);
	if (d->model3 > 0 && grid)
		ds_grid(w, d, "model", ranks);
	for (uint64_t m = 0; d->model3 == 0 && m < MIN(d->models, SERIES_MAX); m++) {
		FMT(name, "mp_rank_%02" PRIu64 "_model_states.pt", m);
		if (work_find(w, d->folder, name) == NULL)
			work_missing(w, work_join(w, d->folder, name));
	}
}

static void rule_deepspeed(struct work *w)
{
	struct ds d = {0};

	for (size_t i = 0; i <= w->n; i++) {
		const struct member *m = &w->m[i];

		if (i == w->n || !str_same(m->folder, d.folder)) {
			if (d.optim + d.model + d.model3 > 0)
				ds_judge(w, &d);
			d = (struct ds){.folder = i < w->n ? m->folder : d.folder};
		}
		if (i < w->n)
			ds_note(&d, m->name);
	}
}

/* ---- Megatron's old form: one folder for each model part, mp_rank_TT[_PPP][_EEE] ---- */

static void rule_megatron_torch(struct work *w)
{
	static const char *const forms[] = {"mp_rank_#_#_#/*", "mp_rank_#_#/*", "mp_rank_#/*"};
	static const char *const files[] = {"model_optim_rng.pt", "distrib_optim.pt"};

	if (strcmp(w->out->layout->id, "megatron_torch") != 0)
		return;
	for (size_t f = 0; f < COUNT(files); f++) {
		uint64_t most[3] = {0};
		size_t dims = 0, have = 0;

		for (size_t i = 0; i < w->n; i++) {
			struct name_number num[NAME_NUMBERS];
			size_t k = 0;

			while (k < COUNT(forms) && !name_match(forms[k], w->m[i].path, num))
				k++;
			if (k == COUNT(forms) || !str_eq(w->m[i].name, files[f]))
				continue;
			dims = COUNT(forms) - k;
			have++;
			for (size_t n = 0; n < dims; n++)
				most[n] = MAX(most[n], MIN(num[n].v, SERIES_MAX));
		}
		if (have == 0 || have == (most[0] + 1) * (most[1] + 1) * (most[2] + 1))
			continue;
		if (!w->q->part)
			work_problem(w, SET_FAULT_MISSING, files[f],
			             "is there for %zu of %" PRIu64 " model parts", have,
			             (most[0] + 1) * (most[1] + 1) * (most[2] + 1));
	}
	w->open_end = true;
}

/* ---- Orbax ---- */

/* Is there a file below folder/sub? */
static bool has_below(const struct work *w, struct str folder, const char *sub)
{
	AUTO_BUF struct buf path = BUF_INIT((size_t)2 * FORMAT_PATH_MAX);

	buf_printf(&path, "%.*s%s%s", (int)folder.n, folder.n == 0 ? "" : folder.p,
	           folder.n == 0 ? "" : "/", sub);
	return work_has_folder(w, buf_view(&path));
}

static void rule_orbax(struct work *w)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct member *m = &w->m[i];
		const struct format_facts *f = facts_of(m, FORMAT_COMMIT);

		if (str_eq(m->name, "manifest.ocdbt") &&
		    !str_starts(name_base(m->folder), "ocdbt.process_") &&
		    !has_below(w, m->folder, "d"))
			work_missing(w, work_join(w, m->folder, "d/"));
		if (f != NULL && m->folder.n == 0 && !f->committed)
			work_problem(w, SET_FAULT_MISSING, m->file->path,
			             "has no commit time: it was not finished");
	}
}

/* ---- Hugging Face ---- */

static bool any_of(const struct work *w, const char *const *patterns, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (work_any(w, patterns[i]))
			return true;
	return false;
}

static void rule_adapter(struct work *w)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct member *m = &w->m[i];

		if ((str_eq(m->name, "adapter_model.safetensors") ||
		     str_eq(m->name, "adapter_model.bin")) &&
		    work_find(w, m->folder, "adapter_config.json") == NULL)
			work_missing(w, work_join(w, m->folder, "adapter_config.json"));
		if (str_eq(m->name, "adapter_config.json") &&
		    work_find(w, m->folder, "adapter_model.safetensors") == NULL &&
		    work_find(w, m->folder, "adapter_model.bin") == NULL &&
		    work_find(w, m->folder, "adapter_model.pt") == NULL &&
		    strcmp(w->out->layout->id, "peft") == 0)
			work_missing(w, work_join(w, m->folder, "adapter_model.safetensors"));
	}
}

static void rule_trainer(struct work *w)
{
	static const char *const weights[] = {
		"model*.safetensors",  "*.safetensors.index.json",
		"pytorch_model*",      "adapter_model.*",
		"pytorch_model*/*",    "global_step#/*",
		"*.safetensors",       "*/*.safetensors",
		"*/pytorch_model.bin", "tf_model.h5",
		"*.msgpack",           "*/adapter_model.*",
	};
	static const char *const optimizer[] = {"optimizer*", "optimizer*/*", "global_step#/*"};
	static const char *const others[] = {"scheduler.pt", "rng_state*.pth"};
	bool opt, other;

	if (strcmp(w->out->layout->id, "hf_trainer") != 0 || w->q->part ||
	    w->out->unfinished != NULL)
		return;
	opt = any_of(w, optimizer, COUNT(optimizer));
	other = any_of(w, others, COUNT(others));
	if (!any_of(w, weights, COUNT(weights)))
		work_missing(w, "model.safetensors");
	if (other && !opt)
		work_missing(w, "optimizer.pt");
	w->out->only_model = !opt && !other;
	/* a copy that was stopped half-way looks like this too */
	w->open_end = w->open_end || !opt || !any_of(w, &others[0], 1) || !any_of(w, &others[1], 1);
}

void rules_run(struct work *w)
{
	mark_named(w);
	mark_leftovers(w);
	rule_torn(w);
	rule_index(w);
	rule_metadata(w);
	rule_no_metadata(w);
	rule_hashes(w);
	rule_pipeline(w);
	rule_series(w);
	rule_splits(w);
	rule_deepspeed(w);
	rule_megatron_torch(w);
	rule_orbax(w);
	rule_adapter(w);
	rule_trainer(w);
}
