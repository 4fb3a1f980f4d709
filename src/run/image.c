/* image.c - looks, pulls, and says in the job's words why an image cannot be had; see image.h. */
#include "run/image.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/seal.h"
#include "io/proc.h"
#include "run/registry.h"

/* its id, digest, names by digest, working directory, then its variables, a line each */
static const char look_format[] =
	"{{.Id}}{{println}}{{.Digest}}{{println}}{{range .RepoDigests}}{{.}} {{end}}{{println}}"
	"{{.Config.WorkingDir}}{{range .Config.Env}}{{println}}{{.}}{{end}}{{println}}";
#define LOOK_MS 120000 /* of commands that only look */
#define OUT_MAX ((size_t)256 << 10)
#define AUTH_MAX ((size_t)8 << 20)
#define WORDS_MAX 300
#define REFERENCES_MAX 8 /* names by digest of one image that a registry is asked about */

/* An image of this machine, as podman describes it. */
struct seen {
	bool there;
	const char *id, *workdir, *path, *env;
	const char *digest;
	struct str references; /* all names by digest, with blanks between */
};

static int look(struct arena *a, const char *image, struct seen *out, struct err *err)
{
	AUTO_BUF struct buf said = BUF_INIT(OUT_MAX);
	const char *argv[] = {"podman", "image", "inspect", "--format", look_format, image, NULL};
	struct str text, line[4] = {0};
	int code = 0;

	*out = (struct seen){0};
	if (proc_run(argv, (struct str){0}, LOOK_MS, &said, &code, err) < 0)
		return err_wrap(err, "image %s", image);
	text = str_of(arena_strz(a, buf_view(&said)));
	for (size_t i = 0; i < COUNT(line); i++) {
		if (code != 0 || !str_cut(&text, '\n', &line[i]))
			return 0;
		line[i] = str_trim(line[i]);
	}
	out->there = true;
	out->id = arena_strz(a, line[0]);
	out->digest = arena_strz(a, line[1]);
	out->references = line[2];
	out->workdir = line[3].n > 0 ? arena_strz(a, line[3]) : "/";
	out->env = arena_strz(a, text);
	while (str_cut(&text, '\n', &line[0])) {
		if (str_starts(line[0], "PATH="))
			out->path = arena_strz(a, str_skip(line[0], strlen("PATH=")));
	}
	return 0;
}

/* --- names --- */

/* Without transport, tag and digest. */
static struct str repository(struct str name)
{
	static const char transport[] = "docker://";
	size_t end, slash;

	if (str_starts(name, transport))
		name = str_skip(name, strlen(transport));
	for (end = 0; end < name.n && name.p[end] != '@'; end++)
		;
	name.n = end;
	for (slash = end; slash > 0 && name.p[slash - 1] != '/'; slash--)
		;
	for (end = slash; end < name.n && name.p[end] != ':'; end++)
		;
	return (struct str){name.p, end};
}

/* podman makes a short name whole: "python" is docker.io/library/python. */
static bool same_repository(struct str whole, struct str name)
{
	return str_same(whole, name) || (whole.n > name.n && whole.p[whole.n - name.n - 1] == '/' &&
	                                 memcmp(whole.p + whole.n - name.n, name.p, name.n) == 0);
}

static bool is_local(const char *name)
{
	return str_starts(str_of(name), "localhost/");
}

const char *image_reference(struct arena *a, const char *name, struct str references,
                            const char *digest)
{
	struct str mine = repository(str_of(name)), one, first = {0};

	while (str_cut(&references, ' ', &one)) {
		if (one.n == 0 || str_starts(one, "localhost/") ||
		    !same_repository(repository(one), mine))
			continue;
		if (digest[0] != '\0' && str_ends(one, digest))
			return arena_strz(a, one);
		if (first.n == 0)
			first = one;
	}
	return first.n > 0 ? arena_strz(a, first) : NULL;
}

/* --- the credentials' file --- */

static int write_auth(struct arena *a, const struct image *im, const char *path, struct err *err)
{
	struct buf text = BUF_INIT(AUTH_MAX);
	int rc = registry_auth(im->spec, im->launch->registry_secret, im->launch->registry_secret2,
	                       im->cancel, &text, err);

	if (rc == 0)
		rc = fs_write_atomic(AT_FDCWD, path, buf_view(&text), 0600, err);
	seal_wipe_buf(&text);
	if (rc < 0)
		return err_wrap(err, "image %s: credentials of its registry %s",
		                im->spec->base_image, registry_host(a, im->spec->registry));
	return 0;
}

/* --- why not --- */

enum why { WHY_DENIED, WHY_UNKNOWN, WHY_AWAY, WHY_CERT, WHY_PLAIN, WHY_SHORT, WHY_FULL, WHY_ELSE };

/* Podman 4's errors, as parts of its last line; the first match counts. */
static const struct {
	const char *words;
	enum why why;
} reasons[] = {
	{"no space left on device", WHY_FULL},
	{"x509:", WHY_CERT},
	{"server gave HTTP response to HTTPS client", WHY_PLAIN},
	{"no such host", WHY_AWAY},
	{"connection refused", WHY_AWAY},
	{"network is unreachable", WHY_AWAY},
	{"no route to host", WHY_AWAY},
	{"i/o timeout", WHY_AWAY},
	{"TLS handshake timeout", WHY_AWAY},
	{"short-name", WHY_SHORT},
	{"unauthorized", WHY_DENIED},
	{"authentication required", WHY_DENIED},
	{"access to the resource is denied", WHY_DENIED},
	{"invalid username/password", WHY_DENIED},
	{"denied:", WHY_DENIED},
	{"403 (Forbidden)", WHY_DENIED},
	{"manifest unknown", WHY_UNKNOWN},
	{"name unknown", WHY_UNKNOWN},
	{"not found", WHY_UNKNOWN},
	{"no image found in manifest list", WHY_UNKNOWN},
};

static enum why why_of(const char *line)
{
	for (size_t i = 0; i < COUNT(reasons); i++) {
		if (strstr(line, reasons[i].words) != NULL)
			return reasons[i].why;
	}
	return WHY_ELSE;
}

static const char *denied_words(struct arena *a, const struct job_spec *s)
{
	const char *host;

	if (s->registry_auth == SPEC_AUTH_NONE)
		return "the registry asks for credentials, or has no such image: name a secret in "
		       "image.docker_auth";
	host = registry_host(a, s->registry);
	if (!registry_has(host, s->base_image))
		return arena_printf(a,
		                    "image.docker_auth holds credentials for %s, but the image is "
		                    "in another registry: correct image.docker_auth.registry",
		                    host);
	return arena_printf(a,
	                    "%s refused the credentials of image.docker_auth, or they do not cover "
	                    "this image: update secret \"%s\" (`stoker secrets set %s`)",
	                    host, s->registry_secret, s->registry_secret);
}

static int refuse(const struct image *im, const char *name, struct str said, struct err *err)
{
	AUTO_ARENA struct arena *a = arena_new();
	const struct job_spec *s = im->spec;
	const struct {
		enum err_code code;
		const char *words;
	} of[] = {
		[WHY_DENIED] = {ERR_IMAGE_DENIED, denied_words(a, s)},
		[WHY_UNKNOWN] = {ERR_IMAGE_NOT_FOUND,
	                         "its registry does not have it, or not for this "
	                         "kind of machine: check the name and tag"},
		[WHY_AWAY] = {ERR_REGISTRY_UNREACHABLE,
	                      "its registry cannot be reached from this machine"},
		[WHY_CERT] =
			{ERR_CERTIFICATE_UNTRUSTED,
	                 "its registry's certificate is not trusted: copy the CA certificate to "
	                 "/etc/containers/certs.d/REGISTRY/ca.crt"},
		[WHY_PLAIN] = {ERR_REGISTRY_UNREACHABLE,
	                       "its registry uses plain HTTP: allow this with "
	                       "`insecure = true` in "
	                       "/etc/containers/registries.conf"},
		[WHY_SHORT] = {ERR_IMAGE_NOT_FOUND,
	                       "its name does not include a registry: write it in full, such as "
	                       "docker.io/library/python:3.12"},
		[WHY_FULL] = {ERR_NO_SPACE, "podman's storage is full: run `podman image prune`"},
		[WHY_ELSE] = {ERR_IMAGE_PULL_FAILED, "it cannot be pulled"},
	};
	struct str line = {0};
	const char *last;
	enum why why;

	said = str_trim(said);
	while (str_cut(&said, '\n', &line))
		;
	last = arena_strz(a, (struct str){line.p, MIN(line.n, (size_t)1000)});
	why = why_of(last);
	return err_set(err, of[why].code,
	               "image %s is not on this machine, and %s. You can also add it with `podman "
	               "load` or "
	               "`podman import`. (podman: %.500s)",
	               name, of[why].words, last);
}

/* --- the pull --- */

#define SIGNAL_BASE 128 /* of an exit code: it was killed by a signal */

struct pull {
	unsigned magic;
#define PULL_MAGIC 0x5250554cU
	const struct image *im;
	const char *name;
	bool here; /* there is one already: a registry that is away is not waited for */
	bool answered, given_up;
	int64_t begun_ms;
};

static bool has(const struct buf *out, const char *mark)
{
	return out->n > 0 && memmem(out->p, out->n, mark, strlen(mark)) != NULL;
}

/* Without a terminal podman says "Copying blob" at the begin of each layer, and no more. The first
 * word after the registry's answer is about signatures. */
static bool pull_goes_on(void *arg, const struct buf *out)
{
	struct pull *p = FROM_VOID(struct pull, arg, PULL_MAGIC);
	static const char mark[] = "Copying blob ";
	int64_t lasts = clock_mono_ms() - p->begun_ms;
	char words[WORDS_MAX];
	int layers = 0;

	p->answered = p->answered || has(out, "Getting image source signatures");
	p->given_up = p->here && !p->answered && lasts > IMAGE_ASK_MS;
	for (size_t i = 0; i + sizeof(mark) <= out->n; i++)
		layers += memcmp(out->p + i, mark, sizeof(mark) - 1) == 0 ? 1 : 0;
	(void)snprintf(words, sizeof(words), "pulling image %.200s: %d layer%s, %" PRId64 " s",
	               p->im->spec->base_image, layers, layers == 1 ? "" : "s", lasts / 1000);
	p->im->note(p->im->arg, words);
	return !p->given_up && !atomic_load(p->im->cancel);
}

static int pull_with(struct pull *p, const char *auth, struct err *err)
{
	AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
	const char *plain[] = {"podman", "pull", p->name, NULL};
	const char *with[] = {"podman", "pull", "--authfile", auth, p->name, NULL};
	int code = 0;

	p->begun_ms = clock_mono_ms();
	if (proc_run_look(auth != NULL ? with : plain, IMAGE_PULL_MS,
	                  &(struct proc_look){pull_goes_on, p}, &out, &code, err) < 0) {
		if (!p->given_up || err->code != ERR_CANCELED)
			return err_wrap(err, "image %s", p->name);
		err_clear(err);
		return err_set(err, ERR_REGISTRY_UNREACHABLE,
		               "image %s: its registry has not answered for %d s", p->name,
		               IMAGE_ASK_MS / 1000);
	}
	p->answered = p->answered || has(&out, "Getting image source signatures");
	if (code > SIGNAL_BASE)
		return err_set(err, ERR_IMAGE_PULL_FAILED,
		               "image %s: podman was killed by signal %d while it pulled it",
		               p->name, code - SIGNAL_BASE);
	return code == 0 ? 0 : refuse(p->im, p->name, buf_view(&out), err);
}

static int pull(struct arena *a, struct pull *p, struct err *err)
{
	const char *path = arena_printf(a, "%s/" IMAGE_AUTH, p->im->dir);
	int rc;

	if (p->im->spec->registry_auth == SPEC_AUTH_NONE)
		return pull_with(p, NULL, err);
	if (write_auth(a, p->im, path, err) < 0)
		return -1;
	rc = pull_with(p, path, err);
	if (unlink(path) < 0 && rc == 0)
		return err_errno(err, errno, "%s holds a password and cannot be removed", path);
	return rc;
}

static int look_again(struct arena *a, const char *name, struct seen *out, struct err *err)
{
	if (look(a, name, out, err) < 0)
		return -1;
	if (!out->there)
		return err_set(err, ERR_IO, "podman pulled image %s but cannot find it", name);
	return 0;
}

/* --- what a name stands for now --- */

static bool in_registry(struct arena *a, const struct image *im, const char *reference)
{
	struct pull p = {.magic = PULL_MAGIC, .im = im, .name = reference, .here = true};
	struct err ignored = {0};

	return pull(a, &p, &ignored) == 0;
}

/* An image that was built here and pushed has a digest of this machine besides the registry's; one
 * of several platforms has that of their list and its own. The registry says which it has. */
static const char *choose_reference(struct arena *a, const struct image *im, const struct seen *s)
{
	const char *name = im->spec->base_image,
		   *best = image_reference(a, name, s->references, s->digest);
	struct str all = s->references, one;

	if (best == NULL || str_same(str_trim(all), str_of(best)) || in_registry(a, im, best))
		return best;
	for (int tries = 0; tries < REFERENCES_MAX && str_cut(&all, ' ', &one); tries++) {
		const char *other = image_reference(a, name, one, "");

		if (other != NULL && strcmp(other, best) != 0 && in_registry(a, im, other))
			return other;
	}
	return best;
}

/* A tag is asked for each time; a digest stands for itself, and some names are of this machine. */
static int resolve(struct arena *a, const struct image *im, struct seen *s, struct image_got *out,
                   struct err *err)
{
	struct pull p = {.magic = PULL_MAGIC, .im = im, .name = im->spec->base_image};
	const char *digest = strchr(p.name, '@');

	if (look(a, p.name, s, err) < 0)
		return -1;
	p.here = s->there;
	if (!s->there || (digest == NULL && !is_local(p.name))) {
		if (pull(a, &p, err) == 0) {
			if (look_again(a, p.name, s, err) < 0)
				return -1;
		} else if (!p.here || p.answered || atomic_load(im->cancel)) {
			return -1;
		} else {
			out->unasked = arena_cstr(a, err->msg);
			err_clear(err);
		}
	}
	out->is.id = s->id;
	if (digest != NULL)
		out->is.reference = image_reference(a, p.name, s->references, digest);
	else if (out->unasked != NULL)
		out->is.reference = image_reference(a, p.name, s->references, s->digest);
	else if (!is_local(p.name))
		out->is.reference = choose_reference(a, im, s);
	return 0;
}

/* --- what was resolved before --- */

static int bring_wanted(struct arena *a, const struct image *im, const struct wire_image *wanted,
                        struct seen *s, struct image_got *out, struct err *err)
{
	struct pull p = {.magic = PULL_MAGIC, .im = im, .name = wanted->reference};

	out->is = *wanted;
	if (look(a, wanted->id, s, err) < 0)
		return -1;
	if (s->there) {
		out->is.id = s->id;
		return 0;
	}
	if (wanted->reference == NULL)
		return err_set(err, ERR_IMAGE_NOT_FOUND,
		               "image %s: this job runs with image %.12s, which is not on this "
		               "machine any more and came from no registry. Push the job again to "
		               "run it with what the name stands for now",
		               im->spec->base_image, wanted->id);
	if (pull(a, &p, err) < 0)
		return err_wrap(err, "image %s, as it was when the job was first started",
		                im->spec->base_image);
	if (look_again(a, p.name, s, err) < 0)
		return -1;
	out->is.id = s->id; /* a list of platforms has another one on another kind of machine */
	return 0;
}

/* podman takes more than names: files and folders of this machine, and its own options. */
static bool is_name(const char *image)
{
	static const char *const transports[] = {"containers-storage:",
	                                         "dir:",
	                                         "docker-archive:",
	                                         "docker-daemon:",
	                                         "oci:",
	                                         "oci-archive:",
	                                         "ostree:",
	                                         "sif:",
	                                         "tarball:"};

	if (image[0] == '-' || image[0] == '/' || image[0] == '.')
		return false;
	for (size_t i = 0; i < COUNT(transports); i++) {
		if (str_starts(str_of(image), transports[i]))
			return false;
	}
	return true;
}

int image_bring(struct arena *a, const struct image *im, const struct wire_image *wanted,
                struct image_got *out, struct err *err)
{
	struct seen s = {0};
	char found[4096];

	*out = (struct image_got){0};
	if (!is_name(im->spec->base_image))
		return err_set(
			err, ERR_INVALID,
			"image %s: name an image of a registry, or one that was made on this "
			"machine (localhost/...)",
			im->spec->base_image);
	if (proc_find("podman", found) == NULL)
		return err_set(
			err, ERR_PODMAN_MISSING,
			"image %s: this machine has no podman (apt install podman); or start "
			"the server with --images host, or leave base_image out",
			im->spec->base_image);
	if ((wanted != NULL ? bring_wanted(a, im, wanted, &s, out, err)
	                    : resolve(a, im, &s, out, err)) < 0)
		return -1;
	out->workdir = s.workdir;
	out->path = s.path;
	out->env = s.env;
	return 0;
}
