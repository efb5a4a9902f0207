#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/secret.h"

/* Written once at start by log_setup(), before there are other threads. */
static enum log_level log_level_min = LOG_LEVEL_INFO;
static enum log_format log_form = LOG_FORMAT_TEXT;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_setup(enum log_level level, enum log_format format)
{
    log_level_min = level;
    log_form = format;
}

bool log_enabled(enum log_level level)
{
    return level >= log_level_min;
}

static void add_text(struct buf *b, const char *text)
{
    struct buf shown = {0};

    if (secret_known()) {
        secret_hide(text, &shown);
        text = buf_text(&shown);
    }
    buf_add_json(b, text, strlen(text));
    buf_clear(&shown);
}

static void write_json(struct buf *b, const char *time, enum log_level level, const char *event,
                       const struct log_field *f)
{
    buf_printf(b, "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"", time, level_names[level]);
    add_text(b, event);
    buf_add_char(b, '"');
    for (; f->name; f++) {
        if (f->text == NULL) {
            buf_printf(b, ",\"%s\":%lld", f->name, (long long)f->number);
            continue;
        }
        buf_printf(b, ",\"%s\":\"", f->name);
        add_text(b, f->text);
        buf_add_char(b, '"');
    }
    buf_add_text(b, "}\n");
}

static void write_text(struct buf *b, const char *time, enum log_level level, const char *event,
                       const struct log_field *f)
{
    buf_printf(b, "%s %-5s %s", time, level_names[level], event);
    for (; f->name; f++) {
        if (f->text == NULL) {
            buf_printf(b, " %s=%lld", f->name, (long long)f->number);
        } else if (f->text[0] && strpbrk(f->text, " \"\\=\n\t\r") == NULL) {
            buf_printf(b, " %s=", f->name);
            add_text(b, f->text); /* as it is: there is nothing to escape */
        } else {
            buf_printf(b, " %s=\"", f->name);
            add_text(b, f->text);
            buf_add_char(b, '"');
        }
    }
    buf_add_char(b, '\n');
}

void log_write(enum log_level level, const char *event, const struct log_field *fields)
{
    struct buf b = {0};
    char time[32];

    if (!log_enabled(level))
        return;
    clock_format(clock_wall_ms(), time);
    if (log_form == LOG_FORMAT_JSON)
        write_json(&b, time, level, event, fields);
    else
        write_text(&b, time, level, event, fields);
    /* One write a line, so that lines of several threads and processes don't mix. A stderr that is
     * gone is no reason to stop. */
    ssize_t ignored = write(STDERR_FILENO, b.data, b.len);
    (void)ignored;
    buf_clear(&b);
}

bool log_limit_pass(struct log_limit *limit, int64_t every_ms, int64_t *held_back)
{
    int64_t now = clock_mono_ms();
    int64_t due = atomic_load(&limit->next_at_ms);

    if (now < due || !atomic_compare_exchange_strong(&limit->next_at_ms, &due, now + every_ms)) {
        atomic_fetch_add(&limit->held_back, 1);
        return false;
    }
    int64_t held = atomic_exchange(&limit->held_back, 0);
    if (held_back)
        *held_back = held;
    return true;
}
