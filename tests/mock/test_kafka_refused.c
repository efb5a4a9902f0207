/* Credentials that a broker refuses: everybody who asks it something says so. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "mock/kafka_help.h"

/* --- a broker that knows nobody -------------------------------------------------------------- */

enum {
    SASL_HANDSHAKE = 17,
    API_VERSIONS = 18,
    UNSUPPORTED_VERSION = 35,
    SASL_AUTHENTICATE = 36,
    SASL_AUTHENTICATION_FAILED = 58
};

struct refuser {
    int fd;
    char address[40];
    pthread_t thread;
    _Atomic int refused;
};

static bool read_all(int fd, uint8_t *to, size_t n)
{
    while (n > 0) {
        ssize_t got = recv(fd, to, n, 0);

        if (got <= 0)
            return false;
        to += got;
        n -= (size_t)got;
    }
    return true;
}

/* One request, answered. False: the connection is over. */
static bool answer(struct refuser *r, int fd)
{
    /* No error, three requests: number, from version, to version. */
    static const uint8_t versions[] = {0, 0,  0, 0, 0, 3, 0, 17, 0, 0, 0, 1,
                                       0, 18, 0, 0, 0, 0, 0, 36, 0, 0, 0, 0};
    static const uint8_t plain[] = {0, 0, 0, 0, 0, 1, 0, 5, 'P', 'L', 'A', 'I', 'N'};
    static const uint8_t no[] = {0, SASL_AUTHENTICATION_FAILED, 0, 2, 'n', 'o', 0, 0, 0, 0};
    uint8_t head[4], request[1000], reply[64] = {0};
    uint32_t size;
    size_t n;

    if (!read_all(fd, head, sizeof head))
        return false;
    memcpy(&size, head, sizeof size);
    size = ntohl(size);
    if (size < 8 || size > sizeof request || !read_all(fd, request, size))
        return false;
    if (request[1] == API_VERSIONS) {
        n = sizeof versions;
        memcpy(reply + 8, versions, n);
        if (request[3] > 0)
            reply[9] = UNSUPPORTED_VERSION;
    } else if (request[1] == SASL_HANDSHAKE) {
        n = sizeof plain;
        memcpy(reply + 8, plain, n);
    } else if (request[1] == SASL_AUTHENTICATE) {
        n = sizeof no;
        memcpy(reply + 8, no, n);
        atomic_fetch_add(&r->refused, 1);
    } else {
        return false;
    }
    reply[3] = (uint8_t)(n + 4);
    memcpy(reply + 4, request + 4, 4); /* the correlation id */
    return send(fd, reply, n + 8, MSG_NOSIGNAL) == (ssize_t)(n + 8);
}

static void *refuser_main(void *arg)
{
    struct refuser *r = arg;
    int fd;

    while ((fd = accept(r->fd, NULL, NULL)) >= 0) {
        struct timeval most = {.tv_sec = 2};

        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
        while (answer(r, fd))
            ;
        (void)close(fd);
    }
    return NULL;
}

static void refuser_open(struct refuser *r)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;

    memset(r, 0, sizeof *r);
    r->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(r->fd >= 0);
    assert_int_equal(bind(r->fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(r->fd, 16), 0);
    assert_int_equal(getsockname(r->fd, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(r->address, sizeof r->address, "127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&r->thread, NULL, refuser_main, r), 0);
}

static void refuser_close(struct refuser *r)
{
    (void)shutdown(r->fd, SHUT_RDWR);
    pthread_join(r->thread, NULL);
    (void)close(r->fd);
}

/* --- who asks -------------------------------------------------------------------------------- */

static void is_refusal(const struct err *e)
{
    if (e->kind != ERR_AUTH || strstr(e->text, "kafka refuses the credentials") == NULL)
        fail_msg("%s: %s", err_kind_name(e->kind), e->text);
    assert_null(strstr(e->text, "the-password"));
}

static void credentials_are_refused(void **state)
{
    struct refuser r;
    struct help_config h;
    struct kafka_topics topics;
    struct source_events events = {0};
    struct source source;
    struct err e = {0};
    const struct kafka_new_topic wanted = {.name = "t", .partitions = 1};
    bool made;

    (void)state;
    refuser_open(&r);
    help_config(&h, r.address, "g", "t");
    help_property(&h, "security.protocol", "SASL_PLAINTEXT");
    help_property(&h, "sasl.mechanisms", "PLAIN");
    help_property(&h, "sasl.username", "nobody");
    help_property(&h, "sasl.password", "the-password");

    assert_false(kafka_describe(&h.config, 1500, &topics, &e));
    is_refusal(&e);
    e = (struct err){0};
    assert_false(kafka_topic_create_if_missing(&h.config, &wanted, 1500, &made, &e));
    is_refusal(&e);
    e = (struct err){0};
    assert_null(kafka_reader_new(&h.config, NULL, 0, 1500, &e));
    is_refusal(&e);
    e = (struct err){0};
    assert_false(kafka_source_new(&h.config, &events, &source, &e));
    is_refusal(&e);
    assert_null(source.ops);
    assert_true(atomic_load(&r.refused) >= 4);
    refuser_close(&r);
}

/* Nobody there is no refusal. */
static void silence_is_no_refusal(void **state)
{
    struct help_config h;
    struct kafka_topics topics;
    struct err e = {0};

    (void)state;
    help_config(&h, "127.0.0.1:1", "g", "t");
    assert_false(kafka_describe(&h.config, 500, &topics, &e));
    assert_int_equal(e.kind, ERR_TRANSIENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(credentials_are_refused),
        cmocka_unit_test(silence_is_no_refusal),
    };

    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
