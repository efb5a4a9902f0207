#include "core/pick.h"

#include <string.h>

#include "base/mem.h"

bool pick_init(struct pick *p, const char *text, struct err *e)
{
    static const struct {
        const char *text;
        enum pick_kind kind;
    } plain[] = {{"@key", PICK_KEY},
                 {"@topic", PICK_TOPIC},
                 {"@partition", PICK_PARTITION},
                 {"@offset", PICK_OFFSET},
                 {"@timestamp", PICK_TIMESTAMP}};
    static const char header[] = "@header.";

    *p = (struct pick){.kind = PICK_VALUE};
    if (text[0] != '@')
        return path_init(&p->path, text, e);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        if (strcmp(text, plain[i].text) == 0) {
            p->kind = plain[i].kind;
            return true;
        }
    }
    if (strncmp(text, header, strlen(header)) == 0 && text[strlen(header)] != '\0') {
        p->kind = PICK_HEADER;
        p->header = mem_text(text + strlen(header));
        return true;
    }
    return err_set(e, ERR_CONFIG, 0,
                   "\"%s\" is no source: a value path, @key, @header.NAME, @topic, @partition, "
                   "@offset or @timestamp",
                   text);
}

char *pick_text(const struct pick *p)
{
    static const char *const names[] = {"",           "@key",    "",          "@topic",
                                        "@partition", "@offset", "@timestamp"};

    if (p->kind == PICK_VALUE)
        return mem_text(p->path.text);
    if (p->kind == PICK_HEADER)
        return mem_printf("@header.%s", p->header);
    return mem_text(names[p->kind]);
}

void pick_clear(struct pick *p)
{
    path_clear(&p->path);
    mem_free(p->header);
    *p = (struct pick){0};
}

char *pick_part_name(const char *source)
{
    char *name = mem_text(source + (source[0] == '@'));

    for (char *c = name; *c != '\0'; c++) {
        if (*c == '.' || *c == '$')
            *c = '_';
    }
    return name;
}

bool pick_bytes(const struct pick *p, const struct record *r, struct slice *out)
{
    *out = slice_of(NULL, 0);
    if (p->kind == PICK_KEY)
        *out = r->key;
    else if (p->kind == PICK_TOPIC)
        *out = slice_text(r->topic);
    else if (p->kind == PICK_HEADER && !record_header(r, p->header, out))
        return false;
    return out->ptr != NULL;
}

bool pick_number(const struct pick *p, const struct record *r, int64_t *out)
{
    if (p->kind == PICK_PARTITION)
        *out = r->partition;
    else if (p->kind == PICK_OFFSET)
        *out = r->offset;
    else if (p->kind == PICK_TIMESTAMP && r->timestamp_type != RECORD_TIMESTAMP_NONE)
        *out = r->timestamp_ms;
    else
        return false;
    return true;
}
