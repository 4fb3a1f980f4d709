/* cmd_compile_why.c - why a job compiled what it compiled: what its harvests have sent, beside what
 * the repository held when it began. */
#include "cli/caches.h"

#include "core/compile_why.h"

#define HARVESTS_MAX 200 /* earlier ones that are read */
#define ROWS_MAX ((size_t)64 << 20)

struct asked {
	unsigned magic;
#define ASKED_MAGIC 0x4c41534bU
	struct cli *c;
	const char *id, *before; /* a commit; NULL: nothing was there */
};

struct paths {
	const char **path;
	size_t n, cap;
};

static void paths_add(struct cli *c, struct paths *p, const char *path)
{
	if (p->n == p->cap) {
		const char **more;

		p->cap = MAX((size_t)256, p->cap * 2);
		more = ARENA_ARRAY(c->arena, const char *, p->cap);
		if (p->n > 0)
			memcpy(more, p->path, p->n * sizeof(*more));
		p->path = more;
	}
	p->path[p->n++] = path;
}

static struct str read_small(void *arg, const char *path, bool stored)
{
	struct asked *q = FROM_VOID(struct asked, arg, ASKED_MAGIC);
	struct str text = {0};
	struct err err = {0};

	if (stored && q->before == NULL)
		return text;
	if (hubrepo_text(q->c, q->id, stored ? q->before : "main", path, &text, &err) < 0)
		return (struct str){0}; /* then less is known of it */
	return text;
}

static const struct doc *read_harvest(struct asked *q, const char *path, const char *rev)
{
	const struct doc *d = NULL;
	struct err ignored = {0};
	struct str text;

	if (hubrepo_text(q->c, q->id, rev, path, &text, &ignored) < 0 ||
	    js_parse(q->c->arena, text, &d, &ignored) < 0)
		return NULL;
	return d;
}

static bool is_record(const struct hubrepo_item *f)
{
	return !f->folder && str_starts(str_of(f->path), CACHES_RECORDS) &&
	       str_ends(str_of(f->path), ".json");
}

/* What the job's harvests say together: their entries, and facts and beginning of the first. */
static int read_own(struct asked *q, const char *job, const struct hubrepo_tree *t,
                    struct paths *made, const struct doc **facts, struct err *err)
{
	const char *mine = arena_printf(q->c->arena, CACHES_RECORDS "%s-", job);
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct doc *d;

		if (!is_record(&t->item[i]) || !str_starts(str_of(t->item[i].path), mine))
			continue;
		d = read_harvest(q, t->item[i].path, "main");
		if (!str_eq(doc_text(doc_get(d, "job")), job))
			continue;
		if (n++ == 0) {
			q->before = doc_cstr(doc_get(d, "before"), NULL);
			*facts = doc_get(d, "facts");
		}
		DOC_EACH (e, doc_get(d, "entries"))
			paths_add(q->c, made, doc_cstr(e, ""));
	}
	if (n == 0)
		return err_set(
			err, ERR_NOT_FOUND,
			"job %s has added nothing to %s: it found all that it needed, has not "
			"harvested yet, or keeps its caches elsewhere (--repo)",
			job, q->id);
	if (q->before != NULL && !hub_commit_ok(str_of(q->before)))
		return err_set(err, ERR_CORRUPT, "the harvest of job %s names no commit", job);
	return 0;
}

static int read_before(struct asked *q, struct paths *stored, const struct doc ***earlier,
                       size_t *n_earlier, struct err *err)
{
	struct hubrepo_tree t;

	*earlier = ARENA_ARRAY(q->c->arena, const struct doc *, HARVESTS_MAX);
	*n_earlier = 0;
	if (q->before == NULL)
		return 0;
	if (hubrepo_tree(q->c, q->id, q->before, true, &t, err) < 0) {
		if (!hubrepo_is_missing(err))
			return -1;
		err_clear(err); /* the history was squashed */
		out_message(q->c, "what was stored when the job began is not known any more");
		q->before = NULL;
		return 0;
	}
	for (size_t i = 0; i < t.n; i++) {
		if (is_record(&t.item[i]) && *n_earlier < HARVESTS_MAX)
			(*earlier)[(*n_earlier)++] = read_harvest(q, t.item[i].path, q->before);
		else if (!t.item[i].folder)
			paths_add(q->c, stored, t.item[i].path);
	}
	return 0;
}

static int show(struct cli *c, const struct compile_miss *m, size_t n, struct err *err)
{
	static const struct out_col cols[] = {{"KIND", false, cell_text, "kind"},
	                                      {"ENTRY", false, cell_name, "entry"},
	                                      {"FILES", true, cell_text, "files"},
	                                      {"REASON", false, cell_text, "reason"},
	                                      {"WHAT", false, cell_text, "detail"}};
	AUTO_BUF struct buf text = BUF_INIT(ROWS_MAX);
	const struct doc *list;
	struct js js;

	js_init(&js, &text);
	js_list(&js);
	for (size_t i = 0; i < n; i++) {
		js_open(&js);
		js_kv(&js, "kind", compile_cache_kinds[m[i].kind].name);
		js_kv(&js, "device", m[i].device[0] != '\0' ? m[i].device : NULL);
		js_kv(&js, "entry", m[i].entry);
		js_kv_u64(&js, "files", m[i].files);
		js_kv(&js, "reason", compile_reason_word[m[i].reason]);
		js_kv(&js, "detail", m[i].detail);
		js_close(&js);
	}
	js_end(&js);
	if (buf_check(&text, "the list", err) < 0 ||
	    js_parse(c->arena, buf_view(&text), &list, err) < 0)
		return -1;
	return out_list(c, list, cols, COUNT(cols), "nothing was compiled", err);
}

/* Where the job keeps its caches, as its file says it: a name alone is one of the user's, no name
 * the team's. NULL: it keeps none, so the caller's is meant. */
static int repo_of_job(struct cli *c, const struct doc *job, const char **word, struct err *err)
{
	const struct doc *reply, *cache;
	struct str user, team;

	if (remote_get(c, &reply, err, "%s", job_path(c, job, "")) < 0)
		return -1;
	job = doc_get(reply, "training_job");
	cache = doc_path(job, "spec", "runtime", "compile_cache", NULL);
	*word = doc_cstr(doc_get(cache, "repo"), NULL);
	user = doc_text(doc_path(job, "user", "email", NULL));
	team = doc_text(doc_path(job, "team", "name", NULL));
	if (*word != NULL && strchr(*word, '/') == NULL)
		*word = arena_printf(c->arena, "%.*s/%s", STR_ARG(user), *word);
	if (*word == NULL && doc_bool(doc_get(cache, "enabled"), false))
		*word = arena_printf(c->arena, "%.*s/" CACHES_NAME, STR_ARG(team));
	return 0;
}

int cmd_compile_cache_why(struct cli *c, struct err *err)
{
	const char *word = opt_text(c, "repo", NULL), *id;
	struct asked q = {.magic = ASKED_MAGIC, .c = c};
	struct compile_miss *miss;
	struct paths made = {0}, stored = {0};
	struct compile_why w = {.arena = c->arena, .read = read_small, .arg = &q};
	const struct doc *job, **earlier;
	struct hubrepo_tree t;
	size_t n;

	catch_interrupt();
	if (resolve_job(c, c->n_arg > 0 ? c->arg[0] : "@", SEVERAL_NEWEST, &job, err) < 0)
		return -1;
	if ((word == NULL && repo_of_job(c, job, &word, err) < 0) ||
	    caches_repo(c, word, &q.id, err) < 0)
		return -1;
	id = doc_cstr(doc_get(job, "id"), "");
	if (hubrepo_tree(c, q.id, "main", true, &t, err) < 0)
		return caches_missing(c, q.id, err);
	if (read_own(&q, id, &t, &made, &w.facts, err) < 0 ||
	    read_before(&q, &stored, &earlier, &w.n_earlier, err) < 0)
		return -1;
	w.made = made.path;
	w.n_made = made.n;
	w.stored = stored.path;
	w.n_stored = stored.n;
	w.earlier = earlier;
	n = compile_cache_why(&w, &miss);
	return show(c, miss, n, err);
}
