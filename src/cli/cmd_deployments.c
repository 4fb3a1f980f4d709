/* cmd_deployments.c - the jobs that serve. */
#include "cli/cli.h"

static void de_requests(const struct doc *d, struct buf *out)
{
	buf_printf(out, "%" PRId64, doc_int(d, 0));
}

int cmd_deployments_ls(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {
		{"NAME", false, cell_name, "name"},
		{"STATE", false, cell_name, "state"},
		{"JOB", false, cell_name, "training_job_id"},
		{"TEAM", false, cell_name, "team_name"},
		{"IN FLIGHT", true, de_requests, "requests_in_flight"},
		{"REQUESTS", true, de_requests, "requests"},
		{"FAILURES", true, de_requests, "failures"},
		{"URL", false, cell_name, "url"}};
	const struct doc *reply;

	if (remote_get(c, &reply, err, "/v1/deployments") < 0)
		return -1;
	return out_list(c, doc_get(reply, "deployments"), cols, COUNT(cols),
	                "no job serves; docs/serving.md shows how one does", err);
}
