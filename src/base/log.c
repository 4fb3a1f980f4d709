/* log.c - one line an event to stderr, as logfmt or JSON. */
#include "base/log.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/shown.h"

#include <stdatomic.h>

#define LOG_LINE_MAX 8192

static const char *const words[] = {
	[LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};

static atomic_int log_least = LOG_INFO;
static atomic_bool log_json;

void log_init(enum log_level least, bool json)
{
	atomic_store(&log_least, (int)least);
	atomic_store(&log_json, json);
}

int log_level_parse(struct str word, enum log_level *out, struct err *err)
{
	for (size_t i = 0; i < COUNT(words); i++) {
		if (str_eq(word, words[i])) {
			*out = (enum log_level)i;
			return 0;
		}
	}
	return err_set(err, ERR_INVALID, "\"%.*s\" is not a log level: debug, info, warn or error",
	               STR_ARG(word));
}

void log_write(enum log_level level, const char *fmt, ...)
{
	AUTO_BUF struct buf text = BUF_INIT(LOG_LINE_MAX);
	AUTO_BUF struct buf line = BUF_INIT(LOG_LINE_MAX * 7); /* every byte may need an escape */
	char when[CLOCK_ISO_CAP];
	va_list ap;

	if ((int)level < atomic_load(&log_least))
		return;
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (text.full)
		buf_puts(&text, "(a message too long to log)");
	for (size_t i = 0; i < text.n; i++) /* one event, one line */
		if (text.p[i] == '\n')
			text.p[i] = ' ';
	clock_iso(clock_wall_ms(), when);
	if (atomic_load(&log_json)) {
		struct js js;

		js_init(&js, &line);
		js.shown = true;
		js_open(&js);
		js_kv(&js, "time", when);
		js_kv(&js, "level", words[level]);
		js_kv_str(&js, "msg", buf_view(&text));
		js_close(&js);
	} else {
		buf_printf(&line, "%s %-5s ", when, words[level]);
		shown_add(&line, buf_view(&text));
	}
	buf_putc(&line, '\n');
	(void)!write(2, line.p, line.n); /* nowhere to report a log that cannot be written */
}
