/* identity.c - see identity.h. */
#include "server/api/identity.h"

#include "base/jwt.h"
#include "server/api/ctx.h"

#define KEY "oidc-key" /* of the row; what is sealed is bound to it, too */
#define KEY_MAX ((size_t)16 << 10)
#define CLAIMS_MAX ((size_t)16 << 10)
#define TOKEN_ID_LEN 22
#define SKEW_S 60 /* clocks of others may be so far behind */

struct signing_key { /* immutable */
	struct buf pem;
	struct arena *a;
	struct jwt_public public_; /* in `a` */
};

struct identities {
	struct lock lock;                /* who reads or makes the key */
	struct signing_key *_Atomic key; /* NULL: nobody has asked yet */
};

void identity_start(struct app *app)
{
	app->identities = xcalloc(1, sizeof(*app->identities));
	lock_init(&app->identities->lock, LOCK_IDENTITY);
}

static void key_free(struct signing_key *k)
{
	if (k == NULL)
		return;
	seal_wipe_buf(&k->pem);
	arena_free(k->a);
	free(k);
}

void identity_free(struct app *app)
{
	if (app->identities == NULL)
		return;
	key_free(atomic_load(&app->identities->key));
	lock_done(&app->identities->lock);
	free(app->identities);
	app->identities = NULL;
}

/* --- the key --------------------------------------------------------------------------------- */

static int read_key(struct app *app, struct buf *pem, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	struct str sealed = {0};

	if (meta_kv_get(app->meta, a, KEY, &sealed, err) < 0)
		return -1;
	if (seal_open(&app->master, str_of(KEY), sealed, pem, err) < 0)
		return err_wrap(err, "the key of web identity");
	return 0;
}

/* Stored before it is used: what is signed can always be verified. */
static int make_key(struct app *app, struct buf *pem, struct err *err)
{
	AUTO_BUF struct buf sealed = BUF_INIT(KEY_MAX * 2);

	jwt_new_key(pem);
	seal_close(&app->master, str_of(KEY), buf_view(pem), &sealed);
	if (meta_kv_put(app->meta, KEY, buf_view(&sealed), err) < 0)
		return -1;
	log_info("web identity: the key that signs was made");
	return 0;
}

static int load(struct app *app, struct err *err)
{
	struct signing_key *k = xcalloc(1, sizeof(*k));
	int r;

	assert(lock_is_mine(&app->identities->lock));
	k->a = arena_new();
	k->pem = (struct buf)BUF_INIT(KEY_MAX);
	r = read_key(app, &k->pem, err);
	if (r < 0 && err->code == ERR_NOT_FOUND) {
		err_clear(err);
		r = make_key(app, &k->pem, err);
	}
	if (r == 0)
		r = jwt_public_key(k->a, buf_view(&k->pem), &k->public_, err);
	if (r == 0)
		atomic_store(&app->identities->key, k);
	else
		key_free(k);
	return r;
}

int identity_load(struct app *app, struct err *err)
{
	struct identities *all = app->identities;
	int r = 0;

	if (atomic_load(&all->key) != NULL)
		return 0;
	lock_take(&all->lock);
	if (atomic_load(&all->key) == NULL)
		r = load(app, err);
	lock_give(&all->lock);
	return r;
}

/* --- tokens ---------------------------------------------------------------------------------- */

static const char *issuer_of(const struct app *app, struct arena *a)
{
	struct str url =
		str_of(app->set.oidc_issuer != NULL ? app->set.oidc_issuer : app->base_url);

	while (str_ends(url, "/"))
		url.n--;
	return arena_strz(a, url);
}

/* Who holds the key has loaded it. */
static int mint(const struct identity_token *t, const char *audience, struct buf *out,
                struct err *err)
{
	const struct app *app = FROM_VOID(const struct app, t->of, APP_MAGIC);
	const struct signing_key *k = atomic_load(&app->identities->key);
	AUTO_BUF struct buf claims = BUF_INIT(CLAIMS_MAX);
	int64_t from_s = clock_wall_ms() / 1000 - SKEW_S;
	char id[TOKEN_ID_LEN + 1];
	struct js js;

	assert(k != NULL);
	seal_id(id, TOKEN_ID_LEN);
	js_init(&js, &claims);
	js_open(&js);
	js_kv(&js, "iss", t->issuer);
	js_kv(&js, "sub", t->subject);
	js_kv(&js, "aud", audience);
	js_kv_int(&js, "iat", from_s);
	js_kv_int(&js, "nbf", from_s);
	js_kv_int(&js, "exp", from_s + IDENTITY_LIFE_S);
	js_kv(&js, "jti", id);
	js_close(&js);
	if (buf_check(&claims, "the token's claims", err) < 0)
		return -1;
	log_info("web identity: signed id=%s audience=%s subject=%s session=%s", id, audience,
	         t->subject, t->session);
	return jwt_sign_rs256(buf_view(&k->pem), k->public_.id, buf_view(&claims), out, err);
}

/* By ids: a name could be had again by somebody else, or hold the words of another subject. */
void identity_of(struct app *app, struct arena *a, const struct identity_who *who,
                 struct identity_token *out)
{
	*out = (struct identity_token){
		.issuer = issuer_of(app, a),
		.subject =
			arena_printf(a, "v=1:org=" IDENTITY_ORG ":team=%s:project=%s:type=training",
	                             who->team_id, who->project_id ? who->project_id : ""),
		.session = arena_printf(a, "stoker-%s", who->job_id ? who->job_id : "server"),
		.mint = mint,
		.of = app,
	};
}

int identity_may(struct app *app, const struct spec_weights *w, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	bool elsewhere = w->endpoint != NULL ||
	                 (str_starts(str_of(w->source), "s3://") && app->set.s3_endpoint != NULL);
	const char *issuer = issuer_of(app, a);

	if (!spec_weights_by_identity(w) || elsewhere || str_starts(str_of(issuer), "https://"))
		return 0;
	return err_set(err, ERR_ISSUER_NOT_PUBLIC,
	               "%s is to be read by web identity, and the issuer of this server's tokens "
	               "is %s: AWS and Google only trust https. An administrator sets "
	               "--oidc-issuer, or --base-url",
	               w->source, issuer);
}

/* --- what everybody may know ----------------------------------------------------------------- */

static const char *issuer(struct app *app, struct arena *a)
{
	return issuer_of(app, a);
}

static int key(struct app *app, struct arena *a, struct jwt_public *out, struct err *err)
{
	const struct signing_key *k;

	if (identity_load(app, err) < 0)
		return -1;
	k = atomic_load(&app->identities->key);
	*out = (struct jwt_public){arena_cstr(a, k->public_.id), arena_cstr(a, k->public_.n),
	                           arena_cstr(a, k->public_.e)};
	return 0;
}

const struct identity_ops identity_ops = {
	.issuer = issuer,
	.key = key,
};
