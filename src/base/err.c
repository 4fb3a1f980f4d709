/* err.c - making, wrapping and classifying errors. */
#include "base/err.h"

static const struct err_info infos[ERR_COUNT] = {[ERR_NONE] = {"ok", 200, 0, false},
#define X(code, word, http, exit, retry) [ERR_##code] = {word, http, exit, retry},
                                                 ERR_TABLE(X)
#undef X
};

static const struct {
	enum err_code class;
	const char *id, *help;
} ids[] = {
#define X(code, class, id, help) [ERR_##code - ERR_COUNT - 1] = {ERR_##class, id, help},
	ERR_IDS(X)
#undef X
};

static enum err_code class_of(enum err_code code)
{
	assert(code != ERR_NONE && code != ERR_COUNT && code < ERR_END);
	/* cppcheck-suppress negativeIndex ; the assertion says that ERR_COUNT itself is none */
	return code < ERR_COUNT ? code : ids[code - ERR_COUNT - 1].class;
}

static int PRINTF(3, 0) err_vset(struct err *err, enum err_code code, const char *fmt, va_list ap)
{
	assert(err->code == ERR_NONE); /* the first cause wins; wrap it, never replace it */
	err->code = class_of(code);
	err->id = code;
	(void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	return -1;
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = err_vset(err, code, fmt, ap);
	va_end(ap);
	return r;
}

int err_missing(struct err *err, enum err_code id)
{
	static const char end[] = "_not_found";
	const char *word;

	if (id < ERR_COUNT)
		return err_set(err, id, "not found");
	/* cppcheck-suppress negativeIndex ; nobody has an error ERR_COUNT */
	word = ids[id - ERR_COUNT - 1].id;
	assert(strlen(word) >= sizeof(end));
	(void)err_set(err, id, "no such %.*s", (int)(strlen(word) + 1 - sizeof(end)), word);
	for (char *c = err->msg; *c != '\0'; c++)
		*c = *c == '_' ? ' ' : *c;
	return -1;
}

/* The error table's code for an errno; those without a row are ERR_IO. */
static enum err_code code_of_errno(int errnum)
{
	static const struct {
		int errnum;
		enum err_code code;
	} rows[] = {
		{ENOENT, ERR_NOT_FOUND},
		{ENOTDIR, ERR_NOT_FOUND},
		{EACCES, ERR_DENIED},
		{EPERM, ERR_DENIED},
		{EROFS, ERR_DENIED},
		{EXDEV, ERR_DENIED},
		{ELOOP, ERR_DENIED},
		{EEXIST, ERR_CONFLICT},
		{ENOTEMPTY, ERR_CONFLICT},
		{EBUSY, ERR_BUSY},
		{EAGAIN, ERR_BUSY},
		{ENOSPC, ERR_NO_SPACE},
		{EDQUOT, ERR_NO_SPACE},
		{EFBIG, ERR_TOO_BIG},
		{ENAMETOOLONG, ERR_INVALID},
		{EINVAL, ERR_INVALID},
		{ETIMEDOUT, ERR_TIMEOUT},
		{ECONNREFUSED, ERR_UNAVAILABLE},
		{ECONNRESET, ERR_UNAVAILABLE},
		{ENOSYS, ERR_UNSUPPORTED},
		{EOPNOTSUPP, ERR_UNSUPPORTED},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		if (rows[i].errnum == errnum)
			return rows[i].code;
	return ERR_IO;
}

int err_errno(struct err *err, int errnum, const char *fmt, ...)
{
	va_list ap;
	char words[128];
	size_t n;

	va_start(ap, fmt);
	(void)err_vset(err, code_of_errno(errnum), fmt, ap);
	va_end(ap);
	n = strlen(err->msg);
	(void)snprintf(err->msg + n, sizeof(err->msg) - n, ": %s",
	               strerror_r(errnum, words, sizeof(words)));
	return -1;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
	char front[ERR_MSG_MAX];
	va_list ap;
	size_t n;
	size_t tail = strlen(err->msg);

	assert(err->code != ERR_NONE);
	va_start(ap, fmt);
	(void)vsnprintf(front, sizeof(front) - 2, fmt, ap);
	va_end(ap);
	n = strlen(front);
	front[n++] = ':';
	front[n++] = ' ';
	if (n > sizeof(err->msg) - 1)
		n = sizeof(err->msg) - 1;
	if (tail > sizeof(err->msg) - 1 - n)
		tail = sizeof(err->msg) - 1 - n;
	memmove(err->msg + n, err->msg, tail);
	memcpy(err->msg, front, n);
	err->msg[n + tail] = '\0';
	return -1;
}

void err_become(struct err *err, enum err_code code)
{
	assert(err->code != ERR_NONE);
	err->code = class_of(code);
	err->id = code;
}

void err_refine(struct err *err, enum err_code id)
{
	if (err->code == class_of(id) && strcmp(err_id(err), infos[err->code].word) == 0)
		err_become(err, id);
}

void err_clear(struct err *err)
{
	err->code = err->id = ERR_NONE;
	err->retry_after_s = 0;
	err->msg[0] = '\0';
}

const struct err_info *err_info(const struct err *err)
{
	assert(err->code < ERR_COUNT);
	return &infos[err->code];
}

const char *err_id(const struct err *err)
{
	assert(err->code < ERR_COUNT);
	/* a class that was set by hand, after an id of another class, is what counts */
	if (err->id > ERR_COUNT && class_of(err->id) == err->code)
		return ids[err->id - ERR_COUNT - 1].id;
	return infos[err->code].word;
}

enum err_code err_of_id(const char *id)
{
	for (size_t i = 0; i < COUNT(ids); i++)
		if (strcmp(ids[i].id, id) == 0)
			return (enum err_code)(ERR_COUNT + 1 + i);
	for (int i = 1; i < ERR_COUNT; i++)
		if (strcmp(infos[i].word, id) == 0)
			return (enum err_code)i;
	return ERR_NONE;
}

void err_id_from(struct err *err, const char *id)
{
	enum err_code code = err_of_id(id);

	if (code > ERR_COUNT && class_of(code) == err->code)
		err->id = code;
}

bool err_row(size_t i, struct err_row *out)
{
	size_t class = i < COUNT(ids) ? ids[i].class : ERR_NONE + 1 + i - COUNT(ids);

	if (class >= ERR_COUNT)
		return false;
	*out = (struct err_row){.id = i < COUNT(ids) ? ids[i].id : infos[class].word,
	                        .help = i < COUNT(ids) ? ids[i].help : NULL,
	                        .info = &infos[class]};
	return true;
}

/* What a gateway in front of a store says with 502 is that the store is away. */
enum err_code err_from_http(int status)
{
	static const struct {
		int status;
		enum err_code code;
	} rows[] = {{408, ERR_TIMEOUT},
	            {410, ERR_NOT_FOUND},
	            {412, ERR_CONFLICT},
	            {502, ERR_UNAVAILABLE}};

	for (int i = 1; i < ERR_COUNT; i++)
		if (infos[i].http == status && status != 500 && i != ERR_UPSTREAM)
			return (enum err_code)i;
	for (size_t i = 0; i < COUNT(rows); i++)
		if (rows[i].status == status)
			return rows[i].code;
	return status >= 500 ? ERR_UNAVAILABLE : ERR_INVALID;
}
