/*
 * repo_card.c - what a repository says of itself: the metadata of its card, which are YAML at the
 * beginning of README.md. Tools choose by them what to do with a model.
 */
#include "server/data/repos.h"

#include "base/json.h"
#include "base/yaml.h"

#define CARD "README.md"
#define CARD_MAX ((uint64_t)1 << 20)
#define ABOUT_MAX ((size_t)1 << 20)
#define TAGS_MAX 200

/* Between a first line of "---" and the next one. */
static const struct doc *metadata(struct arena *a, struct str card)
{
	static const char line[] = "---\n";
	const struct doc *d = NULL;
	const char *text = arena_strz(a, card), *end;
	struct err ignored = {0};

	if (strncmp(text, line, strlen(line)) != 0)
		return NULL;
	end = strstr(text + strlen(line) - 1, "\n---");
	if (end == NULL || end < text + strlen(line))
		return NULL;
	if (yml_parse(a, str_n(text + strlen(line), (size_t)(end - text) - strlen(line) + 1), &d,
	              &ignored) < 0 ||
	    !doc_is(d, DOC_MAP))
		return NULL;
	return d;
}

static const struct doc *card_of(struct app *app, const struct repo_making *m)
{
	const struct hub_file *f = hub_listing_file(m->l, STR_LIT(CARD));
	AUTO_BUF struct buf text = BUF_INIT((size_t)CARD_MAX + 1);
	struct err err = {0};

	if (f == NULL || f->size > CARD_MAX)
		return NULL;
	if (hub_read_blob(app, &m->sha256[f - m->l->file], f->size, &text, &err) < 0) {
		log_warn("hub: the card of %s: %s", m->l->id, err.msg);
		return NULL;
	}
	return metadata(m->a, buf_view(&text));
}

/* The words of a member, a text or a list of them, each with a prefix. */
static void tags_of(struct js *js, const struct doc *card, const char *key, const char *prefix,
                    size_t *n)
{
	const struct doc *d = doc_get(card, key);

	if (doc_is(d, DOC_TEXT) && *n < TAGS_MAX) {
		js_fmt(js, "%s%.*s", prefix, STR_ARG(d->text));
		++*n;
	}
	DOC_EACH (item, doc_is(d, DOC_LIST) ? d : NULL) {
		if (!doc_is(item, DOC_TEXT) || *n == TAGS_MAX)
			continue;
		js_fmt(js, "%s%.*s", prefix, STR_ARG(item->text));
		++*n;
	}
}

static void write_card(struct js *js, const struct doc *card)
{
	static const char *const tags[][2] = {
		{"library_name", ""},
		{"pipeline_tag", ""},
		{"tags", ""},
		{"language", ""},
		{"license", "license:"},
		{"datasets", "dataset:"},
		{"base_model", "base_model:"},
	};
	static const char *const words[] = {"library_name", "pipeline_tag"};
	size_t n = 0;

	for (size_t i = 0; i < COUNT(words); i++)
		if (doc_is(doc_get(card, words[i]), DOC_TEXT))
			js_kv(js, words[i], doc_cstr(doc_get(card, words[i]), ""));
	js_key(js, "tags");
	js_list(js);
	for (size_t i = 0; i < COUNT(tags); i++)
		tags_of(js, card, tags[i][0], tags[i][1], &n);
	js_end(js);
	js_key(js, "cardData");
	js_doc(js, card);
}

static void write_about(struct buf *out, const struct repo_making *m, const struct doc *card)
{
	char made[CLOCK_ISO_CAP], now[CLOCK_ISO_CAP];
	struct js js;

	clock_iso(m->repo->created_ms, made);
	clock_iso(m->git->ms, now);
	js_init(&js, out);
	js_open(&js);
	js_kv(&js, "author", m->repo->owner);
	js_kv(&js, "createdAt", made);
	js_kv(&js, "lastModified", now);
	if (card != NULL)
		write_card(&js, card);
	js_close(&js);
}

const char *repo_about(struct app *app, const struct repo_making *m)
{
	AUTO_BUF struct buf with = BUF_INIT(ABOUT_MAX), without = BUF_INIT(ABOUT_MAX);
	const struct doc *card = card_of(app, m);

	write_about(&with, m, card);
	if (!with.full)
		return arena_cstr(m->a, buf_cstr(&with));
	write_about(&without, m, NULL);
	return arena_cstr(m->a, buf_cstr(&without));
}
