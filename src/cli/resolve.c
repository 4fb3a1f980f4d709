/* resolve.c - jobs, projects and teams as people type them: id, start of an id, name, or @. */
#include "cli/cli.h"

#define AMBIGUOUS_SHOWN 5

struct match {
	const struct doc *hit;
	size_t n;
	char ids[AMBIGUOUS_SHOWN * 12 + 1];
};

/* The first one counts: lists are newest first. */
static void note(struct match *m, const struct doc *d)
{
	m->n++;
	if (m->hit == NULL)
		m->hit = d;
	if (m->n <= AMBIGUOUS_SHOWN && strlen(m->ids) + 10 < sizeof(m->ids)) {
		size_t at = strlen(m->ids);

		(void)snprintf(m->ids + at, sizeof(m->ids) - at, "%s%.8s", at > 0 ? ", " : "",
		               doc_cstr(doc_get(d, "id"), "?"));
	}
}

/* Exact id, then exact name, then a unique start of an id. The list is newest first. */
static int pick(const struct doc *list, const char *word, const char *what, enum err_code none,
                bool names_repeat, const struct doc **out, struct err *err)
{
	struct match id = {0}, name = {0}, prefix = {0};

	DOC_EACH (d, list) {
		struct str its_id = doc_text(doc_get(d, "id"));

		if (str_eq(its_id, word))
			note(&id, d);
		if (str_eq(doc_text(doc_get(d, "name")), word))
			note(&name, d);
		if (str_starts(its_id, word))
			note(&prefix, d);
	}
	if (id.n > 0)
		*out = id.hit;
	else if (name.n == 1 || (name.n > 1 && names_repeat))
		*out = name.hit;
	else if (name.n == 0 && prefix.n == 1)
		*out = prefix.hit;
	else if (name.n > 1 || prefix.n > 1)
		return err_set(err, ERR_NAME_AMBIGUOUS,
		               "%s \"%s\" could be any of %s%s: use a longer id", what, word,
		               name.n > 1 ? name.ids : prefix.ids,
		               MAX(name.n, prefix.n) > AMBIGUOUS_SHOWN ? ", ..." : "");
	else
		return err_set(err, none, "there is no %s \"%s\"", what, word);
	return 0;
}

int resolve_job(struct cli *c, const char *word, const struct doc **job, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(4096);
	const struct doc *reply, *list;
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	js_key(&js, "order_by");
	js_list(&js);
	js_open(&js);
	js_kv(&js, "field", "created_at");
	js_kv(&js, "order", "desc");
	js_close(&js);
	js_end(&js);
	js_close(&js);
	if (remote_call(c, HTTP_POST, "/v1/training_jobs/search", &body, &reply, err) < 0)
		return -1;
	list = doc_get(reply, "training_jobs");
	if (strcmp(word, "@") != 0)
		return pick(list, word, "job", ERR_JOB_NOT_FOUND, true, job, err);
	*job = doc_first(list);
	return *job != NULL ? 0
	                    : err_set(err, ERR_JOB_NOT_FOUND, "there is no job yet: stoker push");
}

int resolve_project(struct cli *c, const char *word, const struct doc **project, struct err *err)
{
	const struct doc *reply;

	if (remote_get(c, &reply, err, "/v1/training_projects") < 0)
		return -1;
	if (strcmp(word, "@") == 0) {
		*project = doc_first(doc_get(reply, "training_projects"));
		return *project != NULL
		               ? 0
		               : err_set(err, ERR_PROJECT_NOT_FOUND, "there is no project yet");
	}
	return pick(doc_get(reply, "training_projects"), word, "project", ERR_PROJECT_NOT_FOUND,
	            false, project, err);
}

int resolve_team(struct cli *c, const char *word, const struct doc **team, struct err *err)
{
	const struct doc *reply;

	if (remote_get(c, &reply, err, "/v1/teams") < 0)
		return -1;
	return pick(doc_get(reply, "teams"), word, "team", ERR_TEAM_NOT_FOUND, false, team, err);
}

const char *job_path(struct cli *c, const struct doc *job, const char *tail)
{
	return arena_printf(
		c->arena, "/v1/training_projects/%s/jobs/%s%s",
		remote_part(c, doc_cstr(doc_path(job, "training_project", "id", NULL), "")),
		remote_part(c, doc_cstr(doc_get(job, "id"), "")), tail);
}
