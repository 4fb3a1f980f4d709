/* cmd_init.c - init: an example's files into a folder; completion, man page and reference. */
#include "base/sync.h"
#include "cli/cli.h"

#include "base/fs.h"
#include "base/json.h"
#include "cli/examples.h"
#include "core/spec.h"

#define PRINT_MAX ((size_t)4 << 20)

static int list_examples(struct cli *c, struct err *err)
{
	static const struct out_col cols[] = {{"EXAMPLE", false, cell_text, "name"},
	                                      {"WHAT IT SHOWS", false, cell_text, "description"}};
	AUTO_BUF struct buf json = BUF_INIT(PRINT_MAX);
	const struct doc *list = NULL;
	struct js js;

	js_init(&js, &json);
	js_list(&js);
	for (size_t i = 0; i < n_example_files; i++) {
		const struct example_file *f = &example_files[i];
		struct str rest = f->body, first;

		if (strcmp(f->path, "train.yaml") != 0)
			continue;
		(void)str_cut(&rest, '\n', &first); /* its first line says what it is */
		js_open(&js);
		js_kv(&js, "name", f->example);
		js_kv_str(&js, "description",
		          str_trim(str_skip(first, str_starts(first, "#") ? 1 : 0)));
		js_close(&js);
	}
	js_end(&js);
	if (js_parse(c->arena, buf_view(&json), &list, err) < 0 ||
	    out_list(c, list, cols, COUNT(cols), "no examples", err) < 0)
		return -1;
	out_message(c, "stoker init --example NAME");
	return 0;
}

static bool exists(const char *dir, const char *path, char *full, size_t cap)
{
	struct stat st;

	(void)snprintf(full, cap, "%s/%s", dir, path);
	return lstat(full, &st) == 0;
}

static void say_next(struct cli *c, const char *dir)
{
	const char *push = strcmp(dir, ".") == 0 ? "stoker push -f"
	                                         : arena_printf(c->arena, "stoker push -f %s", dir);
	const char *lines[] = {
		arena_printf(c->arena, "edit %s/train.yaml", dir),
		arena_printf(c->arena, "%-24s # push it and follow its log", push),
	};

	out_next(c, lines, COUNT(lines));
}

int cmd_init(struct cli *c, struct err *err)
{
	const char *want = opt_text(c, "example", "hello"), *dir = c->n_arg > 0 ? c->arg[0] : ".";
	char full[FS_PATH_MAX];
	size_t found = 0;

	if (opt_flag(c, "list-examples"))
		return list_examples(c, err);
	for (size_t i = 0; i < n_example_files; i++) {
		if (strcmp(example_files[i].example, want) != 0)
			continue;
		found++;
		if (!opt_flag(c, "force") && exists(dir, example_files[i].path, full, sizeof(full)))
			return err_set(err, ERR_CONFLICT,
			               "%s already exists; --force overwrites it", full);
	}
	if (found == 0)
		return err_set(err, ERR_NOT_FOUND,
		               "unknown example \"%s\": `stoker init --list-examples` lists them",
		               want);
	if (fs_mkdirs(AT_FDCWD, dir, 0755, err) < 0)
		return -1;
	for (size_t i = 0; i < n_example_files; i++) {
		const struct example_file *f = &example_files[i];

		if (strcmp(f->example, want) != 0)
			continue;
		(void)exists(dir, f->path, full, sizeof(full));
		if (fs_write_atomic(AT_FDCWD, full, f->body, f->executable ? 0755 : 0644, err) < 0)
			return -1;
		out_message(c, "wrote %s", full);
	}
	say_next(c, dir);
	return 0;
}

static int print(void (*fn)(struct buf *out), struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(PRINT_MAX);

	fn(&out);
	if (buf_check(&out, "the page", err) < 0)
		return -1;
	(void)fwrite(buf_cstr(&out), 1, out.n, stdout);
	return 0;
}

int cmd_completion(struct cli *c, struct err *err)
{
	if (c->n_arg > 0 && strcmp(c->arg[0], "bash") != 0)
		return err_set(err, ERR_INVALID, "only bash completion is available");
	return print(usage_completion, err);
}

int cmd_man(struct cli *c UNUSED, struct err *err)
{
	return print(usage_man, err);
}

int cmd_print_cli(struct cli *c UNUSED, struct err *err)
{
	return print(usage_reference, err);
}

int cmd_print_errors(struct cli *c UNUSED, struct err *err)
{
	return print(usage_errors, err);
}

static void locks_page(struct buf *out)
{
	buf_puts(out,
	         "# Locks\n\nPrinted by `make docs` from the table of locks (src/base/lock_ids.h). "
	         "A thread takes them downwards in this list, never upwards, and never two of one "
	         "name; the program asserts it.\n\n| lock | where | what it guards |\n"
	         "|---|---|---|\n");
	for (enum lock_id i = 0; i < LOCK_COUNT; i++) {
		const struct lock_row *row = lock_row(i);

		buf_printf(out, "| `%s` | %s | %s |\n", row->name, row->where, row->what);
	}
}

int cmd_print_locks(struct cli *c UNUSED, struct err *err)
{
	return print(locks_page, err);
}

static void job_file_page(struct buf *out)
{
	buf_puts(out, "# The job file\n\nPrinted by `make docs` from the tables that check it. ");
	spec_reference(out);
}

int cmd_print_job_file(struct cli *c UNUSED, struct err *err)
{
	return print(job_file_page, err);
}
