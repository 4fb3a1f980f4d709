/* joblist.c - lists of jobs, gathered page by page. */
#include "cli/joblist.h"

#define PAGE 1000 /* the most that one answer holds */
#define PREFIX "TRAINING_JOB_"

const char *const joblist_active[] = {PREFIX "PENDING", PREFIX "CREATED", PREFIX "DEPLOYING",
                                      PREFIX "RUNNING"};
const size_t n_joblist_active = COUNT(joblist_active);

const char *job_status(const struct doc *job)
{
	const char *s = doc_cstr(doc_get(job, "current_status"), "?");

	return strncmp(s, PREFIX, sizeof(PREFIX) - 1) == 0 ? s + sizeof(PREFIX) - 1 : s;
}

static int page(struct cli *c, const struct joblist_want *want, size_t limit, const char *cursor,
                const struct doc **reply, struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(65536);
	struct js js;

	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "project_id", want->project_id);
	js_kv(&js, "user", want->user);
	js_kv_bool(&js, "mine", want->mine);
	js_kv_u64(&js, "limit", limit);
	js_kv(&js, "cursor", cursor);
	if (want->n_statuses > 0) {
		js_key(&js, "statuses");
		js_list(&js);
		for (size_t i = 0; i < want->n_statuses; i++)
			js_cstr(&js, want->statuses[i]);
		js_end(&js);
	}
	js_close(&js);
	return remote_call(c, HTTP_POST, "/v1/training_jobs/search", &body, reply, err);
}

void list_append(struct cli *c, struct doc *list, struct doc **last, const struct doc *more)
{
	DOC_EACH (one, more) {
		struct doc *copy = ARENA_NEW(c->arena, struct doc);

		*copy = *one;
		copy->next = NULL;
		if (*last == NULL)
			list->first = copy;
		else
			(*last)->next = copy;
		*last = copy;
		list->count++;
	}
}

int joblist(struct cli *c, const struct joblist_want *want, struct joblist *out, struct err *err)
{
	struct doc *list = ARENA_NEW(c->arena, struct doc), *last = NULL;
	size_t limit = want->limit > 0 ? want->limit : JOBLIST_MAX;
	const char *cursor = NULL;
	const struct doc *reply;

	*list = (struct doc){.kind = DOC_LIST};
	do {
		if (page(c, want, MIN(limit - list->count, (size_t)PAGE), cursor, &reply, err) < 0)
			return -1;
		list_append(c, list, &last, doc_get(reply, "training_jobs"));
		cursor = doc_cstr(doc_get(reply, "next_cursor"), NULL);
	} while (cursor != NULL && list->count < limit);
	out->list = list;
	out->total = (uint64_t)doc_int(doc_get(reply, "total"), (int64_t)list->count);
	return 0;
}
