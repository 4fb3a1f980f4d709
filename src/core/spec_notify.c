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

static void write_notify_on(struct js *js, const void *item)
{
	const struct spec_notify *n = item;

	js_list(js);
	for (enum notify_on on = 0; on < NOTIFY_COUNT; on++) {
		if ((n->on & 1U << on) != 0)
			js_cstr(js, notify_words[on]);
	}
	js_end(js);
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
	{.name = "webhook", .kind = SPEC_NAME, .flags = SPEC_REQUIRED, .read = read_webhook,
	 .at = offsetof(struct spec_notify, webhook),
	 .help = "secret that holds the URL and, on a second line, the signing key; see "
	         "docs/operating.md"},
	{.name = "on", .kind = SPEC_CUSTOM, .read = read_notify_on, .write = write_notify_on,
	 .type = "list of text",
	 .help = "`running`, `retrying`, `completed`, `failed` (includes deploy_failed), "
	         "`deploy_failed`, `stopped`; all final states if omitted"},
};
/* clang-format on */

static void read_notify(struct spec_reader *r, const struct doc *d, void *item, size_t i)
{
	struct spec_notify *n = item;

	spec_read_item(r, &spec_notify_block, d, n);
	if (!spec_given(doc_get(d, "on")))
		n->on = NOTIFY_DEFAULT;
	for (const struct spec_notify *other = n - i; other < n; other++) {
		if (n->webhook != NULL && other->webhook != NULL &&
		    strcmp(n->webhook, other->webhook) == 0)
			spec_fault_at(r, doc_get(d, "webhook"), "webhook",
			              "is given twice: merge the two `on` lists");
	}
}

const struct spec_block spec_notify_block =
	SPEC_ITEM("job.notify[]", "Webhooks (Stoker only).", notify_fields, struct spec_notify,
                  .read = read_notify);
