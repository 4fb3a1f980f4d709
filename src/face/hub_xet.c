/*
 * hub_xet.c - what clients that speak Xet ask of a server when they send large files. Downloads
 * never speak of it (hub_json.c). The calls: https://huggingface.co/docs/xet/api.
 *
 * The address that a client is told has the repository and an epoch in its path; the token that it
 * is told is for that repository, and for a while.
 */
#include "base/clock.h"
#include "core/xet_shard.h"
#include "face/hub_impl.h"

#define REPLY_MAX ((size_t)64 << 10)
#define VALID_S 3600
#define TEXT_CAP 256

static void sign(const struct request *rq, const char *repo_id, int64_t until_s,
                 char out[HASH_HEX_CAP])
{
	char text[TEXT_CAP];

	FMT(text, "hub-xet\n%s\n%" PRId64, repo_id, until_s);
	hub_sign(rq, text, out);
}

int hub_get_xet_token(struct request *rq, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(REPLY_MAX);
	int64_t now_s = clock_wall_ms() / 1000, until_s = now_s + VALID_S;
	const struct repo_ops *ops = NULL;
	struct hub_name name = {0};
	const char *url, *token;
	char mac[HASH_HEX_CAP];
	struct model_repo r;
	struct js js;

	if (hub_repos_of(rq, &ops, err) < 0 || hub_name_of(rq, &name, err) < 0 ||
	    ops->to_write(face_ask(rq), name.type, name.id, &r, err) < 0)
		return -1;
	sign(rq, r.id, until_s, mac);
	url = arena_printf(rq->arena, "%s/xet/%s/%" PRId64, face_url(rq), r.id,
	                   ops->xet_epoch(face_ctx(rq)->app, now_s));
	token = arena_printf(rq->arena, "%" PRId64 ".%s", until_s, mac);
	js_init(&js, &out);
	js_open(&js);
	js_kv(&js, "casUrl", url);
	js_kv(&js, "accessToken", token);
	js_kv_int(&js, "exp", until_s);
	js_close(&js);
	reply_header(rq, "X-Xet-Cas-Url", url);
	reply_header(rq, "X-Xet-Access-Token", token);
	reply_header(rq, "X-Xet-Token-Expiration", arena_printf(rq->arena, "%" PRId64, until_s));
	return hub_send_json(rq, &out, err);
}

/* Is the token one for this repository? */
static int may_send(struct request *rq, struct repo_xet *out, struct err *err)
{
	struct str head = request_header(rq, "Authorization"), until, token = head, scheme;
	char mac[HASH_HEX_CAP];
	uint64_t epoch = 0, until_s = 0;

	if (!str_cut(&token, ' ', &scheme) || !str_ieq(scheme, "Bearer") ||
	    !str_cut(&token, '.', &until) || str_u64(until, 0, INT64_MAX, &until_s, err) < 0 ||
	    str_u64(hub_arg(rq, "epoch"), 0, UINT64_MAX, &epoch, err) < 0 ||
	    hub_arg(rq, "repo").n > 64) {
		err_clear(err);
		return err_set(err, ERR_AUTH, "a token for this repository is required");
	}
	out->repo_id = arena_strz(rq->arena, hub_arg(rq, "repo"));
	out->epoch = epoch;
	sign(rq, out->repo_id, (int64_t)until_s, mac);
	if (!hub_signature_is(token, mac))
		return err_set(err, ERR_AUTH, "this token is not one for this repository");
	rq->sender = out->repo_id;
	if ((int64_t)until_s < clock_wall_ms() / 1000)
		return err_set(err, ERR_AUTH, "this token has expired: ask for another one");
	return 0;
}

int hub_post_xorb(struct request *rq, struct err *err)
{
	const struct repo_bytes from = hub_body(rq);
	const struct repo_ops *ops = NULL;
	struct xet_hash hash;
	struct repo_xet x;
	bool fresh = false;

	if (hub_repos_of(rq, &ops, err) < 0 || may_send(rq, &x, err) < 0 ||
	    xet_hash_parse(hub_arg(rq, "hash"), &hash, err) < 0)
		return -1;
	if (!request_place(rq))
		return 0;
	if (ops->xorb_put(face_ctx(rq)->app, &x, &hash, rq->body_len, &from, &fresh, err) < 0)
		return -1;
	return reply_bytes(rq, 200, "application/json",
	                   fresh ? STR_LIT("{\"was_inserted\":true}")
	                         : STR_LIT("{\"was_inserted\":false}"));
}

int hub_post_shard(struct request *rq, struct err *err)
{
	static const char events[] = "{\"type\":\"validating\",\"verified\":1,\"total\":1}\n"
				     "{\"type\":\"result\"}\n";
	const struct repo_ops *ops = NULL;
	uint64_t seq = httpd_channel_seq(request_httpd(rq), hub_places_channel());
	struct repo_xet x;
	struct str body;
	bool no_place;

	if (hub_repos_of(rq, &ops, err) < 0 || may_send(rq, &x, err) < 0 ||
	    request_body(rq, &body, err) < 0 ||
	    ops->shard_put(face_ctx(rq)->app, &x, body, &no_place, err) < 0)
		return -1;
	if (no_place && !rq->timed_out)
		return hub_wait(rq, hub_places_channel(), seq, err);
	if (no_place) {
		err->retry_after_s = HUB_RETRY_S;
		return err_set(err, ERR_UNAVAILABLE,
		               "files of this repository, or of others of the team, are still "
		               "being put together: send the shard again");
	}
	if (str_ends(rq->path, "/v2/shards"))
		return reply_bytes(rq, 200, "application/x-ndjson", STR_LIT(events));
	return reply_bytes(rq, 200, "application/json", STR_LIT("{\"result\":1}"));
}

/* What a client wants to know that is answered by "no": other ways to send, chunks of others. */
int hub_get_no_chunk(struct request *rq, struct err *err)
{
	struct repo_xet x;

	if (may_send(rq, &x, err) < 0)
		return -1;
	return err_set(err, ERR_NOT_FOUND, "this server does not have it");
}
