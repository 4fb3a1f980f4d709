/* name.c - patterns of names, and what the names of temporary files, logs and pointers are. */
#include "format/name.h"

#include "format/format.h"

struct str name_base(struct str path)
{
	const char *slash = path.n == 0 ? NULL : memrchr(path.p, '/', path.n);

	return slash == NULL ? path : str_skip(path, (size_t)(slash - path.p) + 1);
}

struct str name_folder(struct str path)
{
	const char *slash = path.n == 0 ? NULL : memrchr(path.p, '/', path.n);

	return str_n(path.p, slash == NULL ? 0 : (size_t)(slash - path.p));
}

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* The number at the front, and how long it is. */
static size_t number(struct str s, uint64_t *v)
{
	size_t n = 0;

	for (*v = 0; n < s.n && digit(s.p[n]); n++)
		if (__builtin_mul_overflow(*v, (uint64_t)10, v) ||
		    __builtin_add_overflow(*v, (uint64_t)(s.p[n] - '0'), v))
			*v = UINT64_MAX;
	return n;
}

bool name_match(const char *p, struct str s, struct name_number num[NAME_NUMBERS])
{
	const char *star = NULL; /* behind the last '*' that was met ... */
	size_t from = 0, i = 0;  /* ... and where what follows it was tried last */
	unsigned found = 0, before = 0;

	for (;;) {
		size_t n = 1;
		uint64_t v;

		if (*p == '*') {
			star = ++p;
			from = i;
			before = found;
			continue;
		}
		if (*p == '\0' && i == s.n)
			return true;
		if (*p == '#' && i < s.n && digit(s.p[i])) {
			n = number(str_skip(s, i), &v);
			assert(found < NAME_NUMBERS);
			if (num != NULL)
				num[found] = (struct name_number){v, i, n};
			found++;
		} else if (*p == '\0' || i == s.n ||
		           (*p == '?' ? s.p[i] == '/' : *p == '#' || *p != s.p[i])) {
			if (star == NULL || from == s.n || s.p[from] == '/')
				return false;
			i = ++from;
			p = star;
			found = before;
			continue;
		}
		p++;
		i += n;
	}
}

/* Names of temporary files and folders, in any part of the path: everything in a temporary folder
 * is temporary. */
static const char *const temporary[] = {
	".tmp??????", /* safetensors */
	"tmp*.safetensors",
	"*.tmp",
	"*.part",
	"*.partial",
	"*.incomplete",
	".incomplete",
	"*.__lock",
	"tmp-checkpoint-*",
	"tmp_step_*",
	"old_step_*",
	"step#-tmp",
	"*.orbax-checkpoint-tmp*",
	"*.reserving-*",
	"checkpoint_tmp*",
	"tmp.pth.tar",
	"recovery_tmp*",
	".nfs*",
};

/* Appended to while the job runs. */
static const char *const logs[] = {
	"events.out.tfevents.*", "*.jsonl", "*.log", "*.csv", "progress.txt", "wandb", "runs",
	"tensorboard",           "mlruns",
};

static const char *const pointers[] = {
	"latest",
	"latest_universal",
	"latest_checkpointed_iteration.txt",
	"latest_train_state.pt",
	"dlrover_latest.txt",
	"LATEST",
	"LOWEST_VAL",
	"last-checkpoint",
	"latest-rank#*",
	"checkpoint_manager_snapshot.json",
};

/* rsync's, ".<name>.<six>": not of a hidden file that only has an extension of six letters. */
static bool is_rsync(struct str part)
{
	static const char *const real[] = {"distcp", "sqlite", "pickle", "tokens"};
	const char *dot = NULL;
	struct str end;

	if (part.n < 9 || part.p[0] != '.')
		return false;
	dot = memrchr(part.p + 1, '.', part.n - 1);
	if (dot == NULL)
		return false;
	end = str_skip(part, (size_t)(dot - part.p) + 1);
	for (size_t i = 0; i < COUNT(real); i++)
		if (str_eq(end, real[i]))
			return false;
	for (size_t i = 0; i < end.n; i++)
		if (end.p[i] == '-' || end.p[i] == '_')
			return false;
	return end.n == 6;
}

static bool any(const char *const *patterns, size_t n, struct str name)
{
	for (size_t i = 0; i < n; i++)
		if (name_match(patterns[i], name, NULL))
			return true;
	return false;
}

enum format_name format_name(struct str path)
{
	struct str rest = path, part = {0};
	bool log = false;

	while (str_cut(&rest, '/', &part)) {
		if (any(temporary, COUNT(temporary), part) || is_rsync(part))
			return FORMAT_NAME_TEMPORARY;
		log = log || any(logs, COUNT(logs), part);
	}
	if (log)
		return FORMAT_NAME_LOG;
	return any(pointers, COUNT(pointers), name_base(path)) ? FORMAT_NAME_POINTER
	                                                       : FORMAT_NAME_PLAIN;
}

bool format_is_config(struct str path)
{
	struct str base = name_base(path);

	return str_eq(base, "config.json") || str_eq(base, "adapter_config.json");
}
