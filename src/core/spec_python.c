/* spec_python.c - `runtime.python` of a specification: the packages that a job wants beside it. */
#include "base/fs.h"
#include "core/pyreq.h"
#include "core/spec_table.h"

#define AT(member) offsetof(struct job_spec, member)

static void read_file(struct spec_reader *r, const struct doc *d, struct job_spec *s)
{
	const char *text = spec_read_text(r, d, FS_PATH_MAX - 1);
	struct err err = {0};

	if (text == NULL)
		return;
	s->python.file = pyreq_file(r->a, str_of(text), &err);
	if (s->python.file == NULL)
		spec_fault(r, d, "%.250s", err.msg);
}

static void read_lines(struct spec_reader *r, const struct doc *d, struct job_spec *s)
{
	const struct doc *list = spec_read_list(r, d, SPEC_REQUIREMENTS_MAX);
	size_t i = 0;

	if (list == NULL)
		return;
	s->python.line = ARENA_ARRAY(r->a, const char *, list->count);
	s->python.n_lines = 0;
	DOC_EACH (item, list) {
		size_t mark = spec_push_index(r, i++);
		const char *text = spec_read_text(r, item, SPEC_REQUIREMENT_MAX);
		struct err err = {0};

		if (text != NULL && pyreq_check(str_of(text), &err) < 0)
			spec_fault(r, item, "%.280s", err.msg);
		else if (text != NULL)
			s->python.line[s->python.n_lines++] = text;
		spec_pop(r, mark);
	}
}

static void read_requirements(struct spec_reader *r, const struct doc *d, void *base)
{
	if (d->kind == DOC_TEXT)
		read_file(r, d, base);
	else if (d->kind == DOC_LIST)
		read_lines(r, d, base);
	else
		spec_fault(r, d, "should be a file's path or a list of requirements, not %s",
		           doc_kind_name(d->kind));
}

static void write_requirements(struct js *js, const void *base)
{
	const struct job_spec *s = base;

	if (s->python.file != NULL) {
		js_cstr(js, s->python.file);
		return;
	}
	js_list(js);
	for (size_t i = 0; i < s->python.n_lines; i++)
		js_cstr(js, s->python.line[i]);
	js_end(js);
}

/* 3.10 is a number in YAML, and then it is 3.1. */
static void read_version(struct spec_reader *r, const struct doc *d, void *base)
{
	struct job_spec *s = base;

	if (d->kind == DOC_TEXT && pyreq_version_ok(d->text))
		s->python.version = arena_strz(r->a, d->text);
	else
		spec_fault(r, d, "should be " PYREQ_VERSION_WORDS ", in quotes");
}

/* clang-format off */
static const struct spec_field python_fields[] = {
	{.name = "requirements", .kind = SPEC_CUSTOM, .read = read_requirements,
	 .write = write_requirements, .type = "path, or list of text",
	 .help = "path of a requirements file in the job folder, or a list of its lines: "
	         "`[\"numpy>=1.26\"]`"},
	{.name = "version", .kind = SPEC_TEXT, .read = read_version, .at = AT(python.version),
	 .help = "Python version in quotes, such as `\"3.11\"`; the machine's `python3` if "
	         "omitted"},
	{.name = "system_site_packages", .kind = SPEC_BOOL, .at = AT(python.system_site),
	 .dflt = "false", .help = "also use packages installed for the interpreter itself, such as "
	                          "Debian's python3-torch"},
};
/* clang-format on */
const struct spec_block spec_python_block = SPEC_MAP(
	"job.runtime.python",
	"A Python environment, built once per content and cached on the node (Stoker only). "
	"`python: FILE` and `python: [LINE, ...]` set `requirements` alone. See "
	"docs/python.md.",
	python_fields);

void spec_read_python(struct spec_reader *r, const struct doc *d, void *base)
{
	struct job_spec *s = base;

	s->python.wanted = true;
	if (d->kind == DOC_MAP)
		spec_read_block(r, &spec_python_block, d, base);
	else
		read_requirements(r, d, base);
}

void spec_write_python(struct js *js, const void *base)
{
	spec_write_block(js, &spec_python_block, base);
}
