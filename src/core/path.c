#include "core/path.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"

static bool well_formed(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && text[0] != '.' && text[len - 1] != '.' && strstr(text, "..") == NULL;
}

bool path_init(struct path *p, const char *text, struct err *e)
{
    if (!well_formed(text))
        return err_set(e, ERR_CONFIG, 0, "\"%s\" is not a path: names with dots between them",
                       text);

    size_t n = 1;
    for (const char *c = text; *c != '\0'; c++)
        n += *c == '.';

    *p = (struct path){.text = mem_text(text), .names = mem_array(n, sizeof(char *)), .n = n};
    for (size_t i = 0; i < n; i++) {
        size_t len = strcspn(text, ".");

        p->names[i] = mem_text_n(text, len);
        text += len + (text[len] == '.');
    }
    return true;
}

void path_clear(struct path *p)
{
    for (size_t i = 0; i < p->n; i++)
        mem_free(p->names[i]);
    mem_free(p->names);
    mem_free(p->text);
    *p = (struct path){0};
}

enum path_result path_get(const struct path *p, const json_t *root, json_t **out)
{
    const json_t *at = root;
    json_t *value = NULL;

    for (size_t i = 0; i < p->n; i++) {
        if (json_is_array(at))
            return PATH_IN_ARRAY;
        value = json_object_get(at, p->names[i]); /* NULL for what is no object */
        if (value == NULL)
            return PATH_MISSING;
        at = value;
    }
    *out = value;
    return PATH_FOUND;
}

bool path_is_prefix(const struct path *a, const struct path *b)
{
    if (a->n > b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        if (strcmp(a->names[i], b->names[i]) != 0)
            return false;
    }
    return true;
}

/* The member name of parent as an object that is parent's alone; made when it is not there and make
 * is set. NULL: it can't be. */
static json_t *own_child(json_t *parent, const char *name, bool make)
{
    json_t *child = json_object_get(parent, name);
    json_t *copy;

    if (child == NULL)
        copy = make ? json_object() : NULL;
    else
        copy = json_is_object(child) ? json_copy(child) : NULL;
    if (copy == NULL)
        return NULL;
    return json_object_set_new_nocheck(parent, name, copy) == 0 ? copy : NULL;
}

bool path_put(const struct path *p, json_t *root, json_t *value)
{
    const char *last = p->names[p->n - 1];

    for (size_t i = 0; i + 1 < p->n; i++) {
        root = own_child(root, p->names[i], true);
        if (root == NULL)
            return false;
    }
    return json_object_get(root, last) == NULL && json_object_set_nocheck(root, last, value) == 0;
}

json_t *path_take(const struct path *p, json_t *root)
{
    const char *last = p->names[p->n - 1];
    json_t *value;

    if (path_get(p, root, &value) != PATH_FOUND)
        return NULL;
    for (size_t i = 0; i + 1 < p->n; i++) {
        root = own_child(root, p->names[i], false);
        MUST(root != NULL); /* path_get() went this way */
    }
    json_incref(value);
    json_object_del(root, last);
    return value;
}
