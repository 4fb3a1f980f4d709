/* resolved.c - the frozen record as JSON:
 * {"weights":[],"own":[],"load":[],"resume":{},"code":[],"compile":{},"image":{}}.
 */
#include "server/control/resolved.h"

#include "base/record.h"

/* clang-format off */
static RECORD(resolved_load, NULL,
	ROW(resolved_load, R_TEXT, name),
	ROW(resolved_load, R_TEXT, job_id),
	ROW(resolved_load, R_TEXT, project_id),
	ROW(resolved_load, R_BOOL | R_MAY, latest),
	ROW_N(resolved_load, R_NUMBERS, ranks, n_ranks));

static RECORD(resolved_own, NULL,
	ROW(resolved_own, R_TEXT, source),
	ROW(resolved_own, R_TEXT, repo_id),
	ROW(resolved_own, R_BOOL | R_MAY, last));

static RECORD(resolved, NULL,
	ROW_OF(resolved, R_LIST, weights, n_weights, wire_weights),
	ROW_OF(resolved, R_LIST | R_MAY, own, n_own, resolved_own),
	ROW_OF(resolved, R_LIST, load, n_load, resolved_load),
	ROW_OF(resolved, R_ONE, resume, has_resume, resolved_load),
	ROW_OF(resolved, R_LIST | R_MAY, code, n_code, wire_code),
	ROW_OF(resolved, R_ONE, compile, has_compile, wire_compile),
	ROW_OF(resolved, R_ONE, image, has_image, wire_image));
/* clang-format on */

void resolved_write(const struct resolved *f, struct buf *out)
{
	record_write(&resolved_record, f, out);
}

int resolved_read(struct arena *a, const char *json, struct resolved *out, struct err *err)
{
	*out = (struct resolved){0};
	if (json == NULL)
		return 0;
	if (record_read(&resolved_record, a, str_of(json), out, err) < 0)
		return err_wrap(err, "frozen record");
	return 0;
}

const struct resolved_load *resolved_load(const struct resolved *f, size_t i)
{
	if (i > 0)
		return &f->load[i - 1];
	return f->has_resume ? &f->resume : NULL;
}

void resolved_manifests(struct arena *a, const struct resolved *f, const char ***out, size_t *n)
{
	*out = ARENA_ARRAY(a, const char *, f->n_weights + 2);
	*n = 0;
	for (size_t i = 0; i < f->n_weights; i++) {
		if (f->weights[i].manifest != NULL)
			(*out)[(*n)++] = f->weights[i].manifest;
	}
	if (f->has_compile && f->compile.manifest != NULL)
		(*out)[(*n)++] = f->compile.manifest;
}

const struct resolved_own *resolved_own(const struct resolved *f, const char *source)
{
	for (size_t i = 0; i < f->n_own; i++)
		if (strcmp(f->own[i].source, source) == 0)
			return &f->own[i];
	return NULL;
}

const struct wire_weights *resolved_find(const struct resolved *f, const struct spec_weights *w)
{
	for (size_t i = 0; i < f->n_weights; i++) {
		if (strcmp(f->weights[i].source, w->source) == 0 &&
		    strcmp(f->weights[i].mount_location, w->mount_location) == 0)
			return &f->weights[i];
	}
	return NULL;
}
