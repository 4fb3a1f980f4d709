/* resolve.c - jobs, projects, teams and checkpoints as people type them; the server knows which. */
#include "cli/cli.h"

static int resolve(struct cli *c, const char *what, const char *word, const struct doc **reply,
                   struct err *err)
{
	if (word[0] == '\0')
		return err_set(err, ERR_USAGE, "the %s's name is empty", what);
	return remote_get(c, reply, err, "/v1/resolve?what=%s&word=%s", what, remote_part(c, word));
}

int resolve_job(struct cli *c, const char *word, const struct doc **job, struct err *err)
{
	const struct doc *reply;

	if (resolve(c, "job", word, &reply, err) < 0)
		return -1;
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

int resolve_checkpoint(struct cli *c, const char *word, const char *job_word,
                       const struct doc **job, const struct doc **checkpoint, struct err *err)
{
	const struct doc *reply;

	if (job_word != NULL)
		word = arena_printf(c->arena, "%s&job=%s", remote_part(c, word),
		                    remote_part(c, job_word));
	else
		word = remote_part(c, word);
	if (remote_get(c, &reply, err, "/v1/resolve?what=checkpoint&word=%s", word) < 0)
		return -1;
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
