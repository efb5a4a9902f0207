/*
 * toml.cc - the one C++ file: toml++ to a jansson tree.
 *
 * toml++ and jansson both walk trees by recursion (building and freeing), so the depth is bounded
 * before toml++ sees the text: nested values by its own setting, the parts of dotted keys by
 * long_key() below.
 */
#include <algorithm>
#include <cctype>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <jansson.h>

#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 32
#include <toml++/impl/preprocessor.h>
/* With NDEBUG these are __builtin_assume() under clang. Some are wrong (3.3.0: a header that starts
 * with neither a key nor a quote), and the compiler must not believe them: the checks behind them
 * report such input. */
#undef TOML_ASSERT_ASSUME
#define TOML_ASSERT_ASSUME(expr) static_assert(true)
#include <toml++/toml.h>

extern "C" {
#include "core/toml.h"
}

namespace
{

struct place {
    unsigned line, column;
};

/* Text of toml++ quotes characters of the input: nothing that moves a cursor may reach a terminal.
 */
json_t *fail(struct err *e, const char *name, place at, std::string_view what)
{
    std::string clean(what.substr(0, ERR_TEXT_MAX));

    for (char &c : clean)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            c = ' ';
    err_set(e, ERR_CONFIG, 0, "%s:%u:%u: %s", name, at.line, at.column, clean.c_str());
    return nullptr;
}

/* Steps through the text knowing only strings and comments from the rest. */
class scanner
{
  public:
    explicit scanner(std::string_view text) : text_(text)
    {
    }

    /* Finds a key with more than TOML_KEY_PARTS_MAX parts. Exact up to the first syntax error, and
     * behind that it does not matter which of the two is reported. */
    bool long_key(place *at)
    {
        unsigned dots = 0;

        while (pos_ < text_.size()) {
            char c = text_[pos_];

            if (c == '"' || c == '\'') {
                skip_string(c);
                continue;
            }
            if (c == '#')
                while (pos_ < text_.size() && text_[pos_] != '\n')
                    step();
            else if (c == '.' && ++dots >= TOML_KEY_PARTS_MAX) {
                *at = at_;
                return true;
            } else if (std::strchr("=,[]{}\n", c))
                dots = 0;
            step();
        }
        return false;
    }

  private:
    void step()
    {
        if (pos_ >= text_.size())
            return;
        if (text_[pos_] == '\n')
            at_ = {at_.line + 1, 1};
        else if ((static_cast<unsigned char>(text_[pos_]) & 0xC0) != 0x80)
            at_.column++;
        pos_++;
    }

    void skip_string(char quote)
    {
        const char three[] = {quote, quote, quote};
        bool many = text_.substr(pos_, 3) == std::string_view(three, 3);

        for (int i = many ? 3 : 1; i > 0; i--)
            step();
        while (pos_ < text_.size()) {
            char c = text_[pos_];

            if (!many && (c == quote || c == '\n')) {
                step();
                return;
            }
            if (many && text_.substr(pos_, 3) == std::string_view(three, 3)) {
                while (pos_ < text_.size() && text_[pos_] == quote)
                    step();
                return;
            }
            if (quote == '"' && c == '\\')
                step();
            step();
        }
    }

    std::string_view text_;
    size_t pos_ = 0;
    place at_ = {1, 1};
};

/* One error for the whole walk: the first. */
struct walk {
    const char *name;
    struct err *e;
    bool failed;
};

json_t *wrap(json_t *value, toml::source_position at, const char *type = nullptr)
{
    json_t *out = json_object();

    json_object_set_new(out, "l", json_integer(at.line));
    json_object_set_new(out, "c", json_integer(at.column));
    if (type)
        json_object_set_new(out, "t", json_string(type));
    json_object_set_new(out, "v", value);
    return out;
}

std::string text_of(const toml::date &d)
{
    char out[32];

    snprintf(out, sizeof out, "%04u-%02u-%02u", unsigned{d.year}, unsigned{d.month},
             unsigned{d.day});
    return out;
}

std::string text_of(const toml::time &t)
{
    char out[48];
    int n = snprintf(out, sizeof out, "%02u:%02u:%02u", unsigned{t.hour}, unsigned{t.minute},
                     unsigned{t.second});

    if (t.nanosecond != 0) {
        n += snprintf(out + n, sizeof out - static_cast<size_t>(n), ".%09" PRIu32, t.nanosecond);
        while (out[n - 1] == '0')
            out[--n] = '\0';
    }
    return out;
}

std::string text_of(const toml::date_time &dt)
{
    std::string out = text_of(dt.date) + "T" + text_of(dt.time);

    if (dt.offset) {
        int minutes = dt.offset->minutes;
        char zone[16];

        snprintf(zone, sizeof zone, "%c%02d:%02d", minutes < 0 ? '-' : '+', std::abs(minutes) / 60,
                 std::abs(minutes) % 60);
        out += minutes == 0 ? "Z" : zone;
    }
    return out;
}

json_t *text_value(const std::string &text)
{
    return json_stringn(text.data(), text.size());
}

json_t *convert(walk *w, const toml::node &node, toml::source_position at);

json_t *convert_table(walk *w, const toml::table &table)
{
    std::vector<std::pair<const toml::key *, const toml::node *>> members;
    json_t *out = json_object();

    for (auto &&[key, node] : table)
        members.emplace_back(&key, &node);
    std::stable_sort(members.begin(), members.end(), [](const auto &a, const auto &b) {
        return a.first->source().begin < b.first->source().begin;
    });
    for (const auto &[key, node] : members) {
        toml::source_position at = key->source().begin;
        std::string text(key->str());

        if (text.find('\0') != std::string::npos && !w->failed) {
            fail(w->e, w->name, {at.line, at.column}, "a NUL in a key has no use here");
            w->failed = true;
        }
        if (w->failed)
            break;
        json_object_set_new(out, text.c_str(), convert(w, *node, at));
    }
    return out;
}

json_t *convert_array(walk *w, const toml::array &array)
{
    json_t *out = json_array();

    for (auto &&node : array) {
        if (w->failed)
            break;
        json_array_append_new(out, convert(w, node, node.source().begin));
    }
    return out;
}

json_t *convert_float(double d, toml::source_position at)
{
    if (std::isnan(d))
        return wrap(json_string("nan"), at, "float");
    if (std::isinf(d))
        return wrap(json_string(d < 0 ? "-inf" : "inf"), at, "float");
    return wrap(json_real(d), at);
}

json_t *convert(walk *w, const toml::node &node, toml::source_position at)
{
    switch (node.type()) {
    case toml::node_type::table:
        return wrap(convert_table(w, *node.as_table()), at);
    case toml::node_type::array:
        return wrap(convert_array(w, *node.as_array()), at);
    case toml::node_type::string:
        return wrap(text_value(node.as_string()->get()), at);
    case toml::node_type::integer:
        return wrap(json_integer(node.as_integer()->get()), at);
    case toml::node_type::floating_point:
        return convert_float(node.as_floating_point()->get(), at);
    case toml::node_type::boolean:
        return wrap(json_boolean(node.as_boolean()->get()), at);
    case toml::node_type::date:
        return wrap(text_value(text_of(node.as_date()->get())), at, "date-local");
    case toml::node_type::time:
        return wrap(text_value(text_of(node.as_time()->get())), at, "time-local");
    case toml::node_type::date_time: {
        const toml::date_time &dt = node.as_date_time()->get();
        return wrap(text_value(text_of(dt)), at, dt.offset ? "datetime" : "datetime-local");
    }
    case toml::node_type::none:
        break;
    }
    MUST(node.type() != toml::node_type::none);
    return nullptr;
}

} // namespace

extern "C" json_t *toml_parse(const char *name, const char *text, size_t len, struct err *e)
{
    place at = {1, 1};

    if (len > TOML_TEXT_MAX)
        return fail(e, name, at, "larger than 1 MiB: not a configuration");
    std::string_view view(len ? text : "", len);
    if (scanner(view).long_key(&at))
        return fail(e, name, at, "a key with more than 32 parts");

    toml::parse_result result = toml::parse(view);
    if (!result) {
        const toml::parse_error &error = result.error();
        toml::source_position pos = error.source().begin;

        std::string what(error.description());

        if (what.find("could not determine value type") != std::string::npos)
            what += " (text needs quotes)";
        return fail(e, name, {std::max(1U, pos.line), std::max(1U, pos.column)}, what);
    }
    walk w = {name, e, false};
    json_t *tree = wrap(convert_table(&w, result.table()), {1, 1});
    if (w.failed) {
        json_decref(tree);
        return nullptr;
    }
    return tree;
}
