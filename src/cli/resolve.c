/* resolve.c - jobs, projects, teams and checkpoints as people type them; the server knows which. */
#include "cli/cli.h"

static int resolve(struct cli *c, const char *what, const char *word, const struct doc **reply,
                   struct err *err)
{
	if (word[0] == '\0')
		return err_set(err, ERR_USAGE, "the %s's name is empty", what);
	return remote_get(c, reply, err, "/v1/resolve?what=%s&word=%s", what, remote_part(c, word));
}

/* An older server does not know the parameter, and refuses a name of several jobs. */
static const char *several_part(enum several several)
{
	return several == SEVERAL_ACTIVE   ? "&several=active"
	       : several == SEVERAL_NEWEST ? "&several=newest"
	                                   : "";
}

/* Says which of several jobs was taken. */
static void name_job(struct cli *c, const struct doc *reply)
{
	const struct doc *job = doc_get(reply, "training_job");
	const struct doc *taken = doc_get(reply, "taken");
	bool active = strcmp(doc_cstr(doc_get(taken, "as"), ""), "active") == 0;

	if (taken == NULL || c->named_job)
		return;
	c->named_job = true;
	out_message(c, "%s is the name of %" PRId64 " jobs: taking the %s, %s (pushed %s ago)",
	            doc_cstr(doc_get(job, "name"), "?"), doc_int(doc_get(taken, "jobs"), 0),
	            active ? "only active one" : "newest", doc_cstr(doc_get(job, "id"), "?"),
	            out_cell_of(c, cell_age, doc_get(job, "created_at")));
}

int resolve_job(struct cli *c, const char *word, enum several several, const struct doc **job,
                struct err *err)
{
	const struct doc *reply;

	if (word[0] == '\0')
		return err_set(err, ERR_USAGE, "the job's name is empty");
	if (remote_get(c, &reply, err, "/v1/resolve?what=job&word=%s%s", remote_part(c, word),
	               several_part(several)) < 0)
		return -1;
	name_job(c, reply);
	*job = doc_get(reply, "training_job");
	return 0;
}

int resolve_project(struct cli *c, const char *word, const struct doc **project, struct err *err)
{
	const struct doc *reply;

	if (resolve(c, "project", word, &reply, err) < 0)
		return -1;
	*project = doc_get(reply, "training_project");
	return 0;
}

int resolve_team(struct cli *c, const char *word, const struct doc **team, struct err *err)
{
	const struct doc *reply;

	if (resolve(c, "team", word, &reply, err) < 0)
		return -1;
	*team = doc_get(reply, "team");
	return 0;
}

int resolve_checkpoint(struct cli *c, const char *word, const char *job_word, enum several several,
                       const struct doc **job, const struct doc **checkpoint, struct err *err)
{
	const struct doc *reply;

	if (job_word != NULL)
		word = arena_printf(c->arena, "%s&job=%s", remote_part(c, word),
		                    remote_part(c, job_word));
	else
		word = remote_part(c, word);
	if (remote_get(c, &reply, err, "/v1/resolve?what=checkpoint&word=%s%s", word,
	               several_part(several)) < 0)
		return -1;
	name_job(c, reply);
	*job = doc_get(reply, "training_job");
	*checkpoint = doc_get(reply, "checkpoint");
	return 0;
}

const char *project_title(struct cli *c, const struct doc *project)
{
	return arena_printf(c->arena, "%s/%s", doc_cstr(doc_get(project, "team_name"), "?"),
	                    doc_cstr(doc_get(project, "name"), "?"));
}

const char *job_path(struct cli *c, const struct doc *job, const char *tail)
{
	return arena_printf(
		c->arena, "/v1/training_projects/%s/jobs/%s%s",
		remote_part(c, doc_cstr(doc_path(job, "training_project", "id", NULL), "")),
		remote_part(c, doc_cstr(doc_get(job, "id"), "")), tail);
}
