/* credential.c - see credential.h. */
#include "store/sources/credential.h"

#include "base/clock.h"
#include "base/seal.h"
#include "core/redact.h"

#define EARLY_MS (5 * 60 * 1000) /* it is renewed so long before its end */
#define TRIES 4
#define WORDS_MAX 400

void credential_init(struct credential *c)
{
	*c = (struct credential){.text = BUF_INIT(CREDENTIAL_MAX)};
	lock_init(&c->lock, LOCK_CREDENTIAL);
}

void credential_done(struct credential *c)
{
	seal_wipe_buf(&c->text);
	lock_done(&c->lock);
}

static int renew(struct credential *c, credential_ask *ask, void *of, const atomic_bool *cancel,
                 struct err *err)
{
	struct retry r = RETRY_INIT(TRIES);
	int64_t life_ms = 0;

	assert(lock_is_mine(&c->lock));
	r.cancel = cancel;
	for (;;) {
		buf_clear(&c->text);
		if (ask(of, cancel, &c->text, &life_ms, err) == 0 &&
		    buf_check(&c->text, "the credential", err) == 0)
			break;
		buf_clear(&c->text);
		if (!retry_again(&r, err))
			return -1;
	}
	life_ms = MAX(0, MIN(life_ms, (int64_t)CREDENTIAL_LIFE_S * 1000));
	c->renew_mono_ms = clock_mono_ms() + MAX(life_ms - EARLY_MS, life_ms / 2);
	return 0;
}

int credential_text(struct credential *c, credential_ask *ask, void *of, struct arena *a,
                    const atomic_bool *cancel, const char **out, struct err *err)
{
	int r = 0;

	lock_take(&c->lock);
	if (c->text.n == 0 || clock_mono_ms() >= c->renew_mono_ms)
		r = renew(c, ask, of, cancel, err);
	if (r == 0)
		*out = arena_strz(a, buf_view(&c->text));
	lock_give(&c->lock);
	return r;
}

bool credential_is_word(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		if ((unsigned char)s.p[i] <= ' ' || (unsigned char)s.p[i] >= 127)
			return false;
	}
	return s.n > 0;
}

/* --- web identity ---------------------------------------------------------------------------- */

int identity_refused(const struct identity_token *t, const char *audience, const char *who,
                     struct str words, struct err *err)
{
	return err_set(err, ERR_SOURCE_DENIED,
	               "%s: %.*s. This server's token said issuer %s, audience %s, subject %s: "
	               "compare that with what is trusted there (docs/operating.md, \"Web "
	               "identity\")",
	               who, (int)MIN(words.n, (size_t)WORDS_MAX), words.n > 0 ? words.p : "",
	               t->issuer, audience, t->subject);
}

/* All of it, and each of its three parts. */
void identity_scrub(struct str token, struct err *err)
{
	AUTO_REDACT struct redact *r = redact_new();
	AUTO_BUF struct buf clean = BUF_INIT(ERR_MSG_MAX * 2);
	struct str rest = token, part;
	struct err ignored = {0};

	(void)(redact_add(r, token, &ignored) < 0); /* CREDENTIAL_MAX is less than its limit */
	while (str_cut(&rest, '.', &part))
		(void)(redact_add(r, part, &ignored) < 0);
	redact_build(r);
	redact_text(r, str_of(err->msg), &clean);
	copy_cut(err->msg, sizeof(err->msg), buf_cstr(&clean));
}
