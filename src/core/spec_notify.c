/* spec_notify.c - `notify` of a specification: webhooks by the names of their secrets, and words.
 */
#include "core/notify.h"
#include "core/spec_table.h"

#include "base/conf.h"

static void read_notify_on(struct spec_reader *r, const struct doc *d, void *base)
{
	const struct doc *list = spec_read_list(r, d, 2 * NOTIFY_COUNT);
	struct spec_notify *n = base;
	size_t i = 0;

	if (list != NULL && list->count == 0)
		spec_fault(r, list, "is empty: remove it to be notified of every final state");
	DOC_EACH (item, list) {
		size_t mark = spec_push_index(r, i++);
		enum notify_on on = notify_parse(doc_text(item));
		const char *near = conf_nearest(doc_text(item), notify_words, NOTIFY_COUNT);

		if (on < NOTIFY_COUNT)
			n->on |= 1U << on;
		else
			spec_fault(r, item,
			           "should be running, retrying, completed, failed, deploy_failed "
			           "or stopped%s%s%s",
			           near != NULL ? ": did you mean \"" : "",
			           near != NULL ? near : "", near != NULL ? "\"?" : "");
		spec_pop(r, mark);
	}
}

/* A URL holds a token: it belongs into a secret, and what is pasted here is not repeated. */
static void read_webhook(struct spec_reader *r, const struct doc *d, void *base)
{
	struct spec_notify *n = base;
	const char *name;

	if (doc_text(d).n > 0 && memmem(doc_text(d).p, doc_text(d).n, "://", 3) != NULL) {
		spec_fault(r, d,
		           "should be the name of a secret, not the URL itself: store the URL "
		           "with `stoker secrets set NAME`");
		return;
	}
	name = spec_read_text(r, d, SPEC_NAME_MAX);
	if (name != NULL && spec_judges(r) && !spec_name_ok(str_of(name)))
		spec_fault(r, d, "is not a name: " SPEC_NAME_RULE);
	else
		n->webhook = name;
}

/* clang-format off */
static const struct spec_field notify_fields[] = {
	{.name = "webhook", .kind = SPEC_CUSTOM, .flags = SPEC_REQUIRED, .read = read_webhook,
	 .type = "name",
	 .help = "secret that holds the URL and, on a second line, the signing key; see "
	         "docs/operating.md"},
	{.name = "on", .kind = SPEC_CUSTOM, .read = read_notify_on, .type = "list of text",
	 .help = "`running`, `retrying`, `completed`, `failed` (includes deploy_failed), "
	         "`deploy_failed`, `stopped`; all final states if omitted"},
};
/* clang-format on */
const struct spec_block spec_notify_block =
	SPEC_MAP("job.notify[]", "Webhooks (Stoker only).", notify_fields);

void spec_read_notify(struct spec_reader *r, const struct doc *d, void *base)
{
	const struct doc *list = spec_read_list(r, d, SPEC_NOTIFY_MAX);
	struct job_spec *s = base;

	if (list == NULL)
		return;
	s->notify = ARENA_ARRAY(r->a, struct spec_notify, list->count);
	DOC_EACH (item, list) {
		struct spec_notify *n = &s->notify[s->n_notify];
		size_t mark = spec_push_index(r, s->n_notify++);

		if (item->kind == DOC_NULL)
			spec_unreadable(r, item, "should be a map, not null");
		spec_read_block(r, &spec_notify_block, item, n);
		if (!spec_given(doc_get(item, "on")))
			n->on = NOTIFY_DEFAULT;
		for (size_t i = 0; i + 1 < s->n_notify; i++) {
			if (n->webhook != NULL && s->notify[i].webhook != NULL &&
			    strcmp(n->webhook, s->notify[i].webhook) == 0)
				spec_fault_at(r, doc_get(item, "webhook"), "webhook",
				              "is given twice: merge the two `on` lists");
		}
		spec_pop(r, mark);
	}
}
