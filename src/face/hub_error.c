/*
 * hub_error.c - errors of the Hub face. Clients decide by X-Error-Code, for over plain HTTP a
 * status alone says nothing to them, and show X-Error-Message. A failure of another Hub is a
 * gateway's error: a client that reads 404 believes that the repository is gone, and one that reads
 * 401 that its own token is bad.
 */
#include "face/hub_impl.h"

#define BODY_MAX (ERR_MSG_MAX * 16)

static const struct {
	enum err_code id;
	const char *code;
} codes[] = {
	{ERR_HUB_REPO_NOT_FOUND, "RepoNotFound"},
	{ERR_HUB_REVISION_NOT_FOUND, "RevisionNotFound"},
	{ERR_HUB_ENTRY_NOT_FOUND, "EntryNotFound"},
	{ERR_HUB_GATED, "GatedRepo"},
};

/* What went wrong between us and another Hub; ERR_SOURCE_TIMEOUT is a gateway's status already. */
static const enum err_code of_gateway[] = {
	ERR_SOURCE_UNREACHABLE, ERR_SOURCE_BUSY,
	ERR_SOURCE_BROKEN,      ERR_SOURCE_CHANGED,
	ERR_SOURCE_INVALID,     ERR_SOURCE_UNSUPPORTED,
	ERR_DIGEST_MISMATCH,    ERR_FILE_NAME_REFUSED,
	ERR_HOST_UNKNOWN,       ERR_HOST_UNREACHABLE,
	ERR_TLS_EXPECTED,       ERR_CERTIFICATE_UNTRUSTED,
	ERR_ADDRESS_DENIED,     ERR_SOURCE_REDIRECT_DENIED,
};

int hub_failed(struct err *err)
{
	static const enum err_code ids[] = {
		ERR_SOURCE_UNREACHABLE,
		ERR_SOURCE_TIMEOUT,
		ERR_SOURCE_BUSY,
		ERR_SOURCE_BROKEN,
	};

	if (err->code == ERR_AUTH) /* the caller's own token was good: he is here */
		err_become(err, ERR_SOURCE_UNAUTHORIZED);
	for (size_t i = 0; i < COUNT(ids); i++)
		err_refine(err, ids[i]);
	return -1;
}

static int status_of(const struct err *err)
{
	if (err->id == ERR_HUB_STALE) /* clients look at the branch again, and try again */
		return 412;
	for (size_t i = 0; i < COUNT(of_gateway); i++)
		if (err->id == of_gateway[i])
			return 502;
	return err_info(err)->http;
}

/* Of a repository, without any token: a Hub tells nobody whether it is there, and clients then
 * advise to log in. */
static bool is_nobodys(struct request *rq)
{
	return request_header(rq, "Authorization").n == 0 && rq->route != NULL &&
	       strstr(rq->route->pattern, "{name}") != NULL;
}

void hub_error_reply(struct request *rq, const struct err *err)
{
	AUTO_BUF struct buf body = BUF_INIT(BODY_MAX);
	const char *words = err->msg;
	struct js js;

	/* These words, and no others, tell a client that it is the token. */
	if (err->code == ERR_AUTH && request_header(rq, "Authorization").n > 0)
		words = "Invalid credentials in Authorization header";
	for (size_t i = 0; i < COUNT(codes); i++)
		if (err->id == codes[i].id)
			reply_header(rq, "X-Error-Code", codes[i].code);
	if (err->code == ERR_AUTH && is_nobodys(rq))
		reply_header(rq, "X-Error-Code", "RepoNotFound");
	reply_header(rq, "X-Error-Message", words);
	js_init(&js, &body);
	js_open(&js);
	js_kv(&js, "error", words);
	js_close(&js);
	(void)reply_json(rq, status_of(err), &body);
}
