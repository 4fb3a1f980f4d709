/* proof.c - see proof.h. The client's side reads its reply byte by byte: what follows is libcurl's.
 */
#include "io/proof.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/seal.h"

#include <poll.h>
#include <sys/socket.h>

#define HEAD_MAX ((size_t)8 << 10)
#define BODY_MAX ((size_t)4 << 10)
#define LOOK_MS 200 /* between two looks at who may cancel */

void proof_id(struct str token, char out[PROOF_ID_LEN + 1])
{
	struct digest d = hash_sha256(token.p, token.n);

	hex_encode(d.b, PROOF_ID_LEN / 2, out);
}

void proof_make(const struct digest *key, struct str challenge, struct str address,
                char out[HASH_HEX_CAP])
{
	AUTO_BUF struct buf text = BUF_INIT(1000);
	struct digest mac;

	buf_printf(&text, "stoker proof 1\n%.*s\n%.*s", STR_ARG(challenge), STR_ARG(address));
	assert(!text.full);
	hash_hmac_sha256(key->b, sizeof(key->b), text.p, text.n, mac.b);
	digest_hex(&mac, out);
}

/* --- the client's side --- */

/* The connection, until when, and what ends it earlier. */
struct wire {
	int fd;
	int64_t until_ms;
	const atomic_bool *cancel;
};

static int await(const struct wire *w, short what, struct err *err)
{
	struct pollfd p = {.fd = w->fd, .events = what};

	while (poll(&p, 1, LOOK_MS) <= 0) {
		if (w->cancel != NULL && atomic_load(w->cancel))
			return err_set(err, ERR_CANCELED, "canceled");
		if (clock_mono_ms() >= w->until_ms)
			return err_set(err, ERR_TIMEOUT, "the server did not answer");
	}
	return 0;
}

static int send_all(const struct wire *w, struct str s, struct err *err)
{
	while (s.n > 0) {
		ssize_t n = send(w->fd, s.p, s.n, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			s = str_skip(s, (size_t)n);
		else if (errno != EAGAIN && errno != EINTR)
			return err_set(err, ERR_UNAVAILABLE, "the connection: %s", strerror(errno));
		else if (await(w, POLLOUT, err) < 0)
			return -1;
	}
	return 0;
}

/* Exactly n bytes more. */
static int receive(const struct wire *w, size_t n, struct buf *out, struct err *err)
{
	while (n > 0) {
		char *to = buf_room(out, n);
		ssize_t got;

		if (to == NULL)
			return err_set(err, ERR_SERVER_UNPROVEN, "the reply is too long");
		got = recv(w->fd, to, n, MSG_DONTWAIT);
		if (got > 0) {
			out->n += (size_t)got;
			n -= (size_t)got;
		} else if (got == 0) {
			return err_set(err, ERR_UNAVAILABLE, "the server closed the connection");
		} else if (errno != EAGAIN && errno != EINTR) {
			return err_set(err, ERR_UNAVAILABLE, "the connection: %s", strerror(errno));
		} else if (await(w, POLLIN, err) < 0) {
			return -1;
		}
	}
	return 0;
}

static int receive_head(const struct wire *w, struct buf *out, struct err *err)
{
	do {
		if (receive(w, 1, out, err) < 0)
			return -1;
	} while (!str_ends(buf_view(out), "\r\n\r\n"));
	return 0;
}

struct answer {
	int status;
	size_t body;
	bool closes;
};

static int parse_head(struct str head, struct answer *out, struct err *err)
{
	struct str line, name;
	struct err ignored = {0};
	uint64_t n = 0;
	bool has_body = false;

	(void)str_cut(&head, '\n', &line);
	if (!str_starts(line, "HTTP/1.") || line.n < 12 ||
	    str_u64(str_n(line.p + 9, 3), 100, 599, &n, &ignored) < 0)
		return err_set(err, ERR_SERVER_UNPROVEN,
		               "the program that answers does not speak HTTP");
	*out = (struct answer){.status = (int)n, .closes = str_starts(line, "HTTP/1.0")};
	while (str_cut(&head, '\n', &line)) {
		line = str_trim(line);
		if (!str_cut(&line, ':', &name))
			continue;
		line = str_trim(line);
		if (str_ieq(name, "content-length"))
			has_body = str_u64(line, 0, BODY_MAX, &n, &ignored) == 0;
		else if (str_ieq(name, "connection"))
			out->closes = str_ieq(line, "close");
		else if (str_ieq(name, "transfer-encoding"))
			return err_set(err, ERR_SERVER_UNPROVEN, "the reply has no Content-Length");
	}
	if (!has_body)
		return err_set(err, ERR_SERVER_UNPROVEN, "the reply has an invalid Content-Length");
	out->body = (size_t)n;
	return 0;
}

/* The port in "127.0.0.1:8000" or "[::1]:8000"; 0 = none. */
static unsigned port_of(struct str address)
{
	struct err ignored = {0};
	uint64_t port = 0;
	size_t at = address.n;

	while (at > 0 && address.p[at - 1] != ':')
		at--;
	if (at == 0 || str_u64(str_skip(address, at), 1, UINT16_MAX, &port, &ignored) < 0)
		return 0;
	return (unsigned)port;
}

static int check(struct proof *p, struct str challenge, struct str body, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct digest key = hash_sha256(p->token.p, p->token.n);
	struct err ignored = {0};
	const struct doc *d = NULL;
	struct str address, proof;
	char want[HASH_HEX_CAP];

	if (js_parse(a, body, &d, &ignored) < 0)
		return err_set(err, ERR_SERVER_UNPROVEN, "the reply does not contain a proof");
	address = doc_text(doc_get(d, "address"));
	proof = doc_text(doc_get(d, "proof"));
	if (address.n > PROOF_ADDRESS_MAX || proof.n != HASH_HEX_CAP - 1)
		return err_set(err, ERR_SERVER_UNPROVEN, "the reply does not contain a proof");
	proof_make(&key, challenge, address, want);
	seal_wipe(&key, sizeof(key));
	if (!seal_same(proof.p, want, HASH_HEX_CAP - 1))
		return err_set(err, ERR_SERVER_UNPROVEN,
		               "another program answers there, not the server of this login");
	p->found = port_of(address);
	if (p->port != 0 && p->found != p->port)
		return err_set(
			err, ERR_SERVER_UNPROVEN,
			"the server of this login was at port %u, and is at port %u now: something "
			"else stands in between. If you have moved the server, run `stoker login` "
			"again",
			p->port, p->found);
	return 0;
}

/* Of what an unproven server says, only whether it is this. */
static bool says(struct str body, const char *id)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct doc *d = NULL;
	struct err ignored = {0};

	return js_parse(a, body, &d, &ignored) == 0 &&
	       str_eq(doc_text(doc_path(d, "error", "id", NULL)), id);
}

int proof_ask(struct proof *p, int fd, struct err *err)
{
	AUTO_BUF struct buf rq = BUF_INIT(HEAD_MAX), head = BUF_INIT(HEAD_MAX),
			    body = BUF_INIT(BODY_MAX);
	char id[PROOF_ID_LEN + 1], challenge[PROOF_CHALLENGE_LEN + 1], json[200];
	struct wire w = {fd, clock_mono_ms() + PROOF_MS, p->cancel};
	uint8_t random[PROOF_CHALLENGE_LEN / 2];
	struct answer answer = {0};

	seal_random(random, sizeof(random));
	hex_encode(random, sizeof(random), challenge);
	proof_id(p->token, id);
	FMT(json, "{\"token\":\"%s\",\"challenge\":\"%s\"}", id, challenge);
	buf_printf(&rq,
	           "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
	           "Content-Length: %zu\r\n\r\n%s",
	           p->target, p->host, strlen(json), json);
	if (buf_check(&rq, "the URL", err) < 0 || send_all(&w, buf_view(&rq), err) < 0 ||
	    receive_head(&w, &head, err) < 0 || parse_head(buf_view(&head), &answer, err) < 0 ||
	    receive(&w, answer.body, &body, err) < 0)
		return -1;
	if (answer.status == 401)
		return err_set(err, ERR_TOKEN_INVALID,
		               "the server does not know this token: it was revoked or has "
		               "expired, or another program answers there");
	if (answer.status == 503 && says(buf_view(&body), "standby"))
		return err_set(err, ERR_STANDBY, "it is a standby, and another server leads");
	if (answer.status == 503 && says(buf_view(&body), "database_unavailable"))
		return err_set(err, ERR_DATABASE_UNAVAILABLE,
		               "the server's database cannot be reached");
	if (answer.status == 503 || answer.status == 429 || answer.closes)
		return err_set(err, ERR_UNAVAILABLE, "the server is busy or restarting");
	if (answer.status != 200)
		return err_set(err, ERR_SERVER_UNPROVEN,
		               "what answers there is no Stoker server, or an older one (HTTP %d)",
		               answer.status);
	return check(p, str_of(challenge), buf_view(&body), err);
}
