/* The load of this benchmark: connections that ask again and again, and check every byte of what comes back.
 *
 * `load --port P --clients N --seconds S [...]` begins its clients over one answer's length, waits --settle seconds,
 * counts for --seconds, then lets open answers end for at most --tail seconds. It prints one line of JSON: times in
 * microseconds, the CPU time that --pids (the engine's first, then the system's) had while it counted.
 * An answer is clean if it has status 200, sound framing, every token of the engine's in its order, a finish reason and,
 * streamed, `data: [DONE]` at its end.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "answer.h"

enum { READ_BYTES = 1 << 16, MOST_PIDS = 256 };

struct client {
    int fd; /* -1: not connected */
    bool is_asking;
    uint64_t asked_at;
    size_t request_sent;
    struct answer answer;
};

struct samples {
    uint64_t *ns;
    size_t number, room;
};

static struct {
    int port, clients, events, gap_ms, prompt_bytes;
    bool is_streamed;
    double seconds, settle, tail;
    const char *key;
    int pids[MOST_PIDS], number_of_pids;
} plan = {.clients = 1, .events = 1, .seconds = 1, .settle = 0.3, .tail = 20, .key = ""};

static char *request;
static size_t request_length;
static struct samples answers, firsts;
static uint64_t open_at, close_at;
static bool is_open, is_closing;
static size_t asked, clean, tokens, answers_in_window;
static const char *first_fault;
static int poll_fd, asking;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t)) return 0;
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void keep(struct samples *samples, uint64_t ns) {
    if (samples->number == samples->room) {
        samples->room = samples->room ? 2 * samples->room : 1 << 16;
        if (!(samples->ns = realloc(samples->ns, samples->room * sizeof *samples->ns))) die("memory");
    }
    samples->ns[samples->number++] = ns;
}

static void ask(struct client *c);

static void end_answer(struct client *c, uint64_t now) {
    answer_end(&c->answer, plan.is_streamed ? plan.events : 1);
    if (c->answer.fault && !first_fault) first_fault = c->answer.fault;
    if (!c->answer.fault) {
        clean++;
        if (is_open) {
            answers_in_window++;
            keep(&answers, now - c->asked_at);
        }
    }
    c->is_asking = false;
    asking--;
    if (c->fd >= 0 && !c->answer.is_kept) {
        close(c->fd);
        c->fd = -1;
    }
    if (!is_closing) ask(c);
}

/* --- Connections ----------------------------------------------------------------------------------------------- */

static void watch(struct client *c, int operation) {
    uint32_t more = c->request_sent < request_length ? EPOLLOUT : 0;
    struct epoll_event event = {.events = EPOLLIN | more, .data.ptr = c};
    if (epoll_ctl(poll_fd, operation, c->fd, &event)) die("epoll_ctl");
}

static void connect_client(struct client *c) {
    struct sockaddr_in address = {AF_INET, htons((uint16_t)plan.port), {htonl(INADDR_LOOPBACK)}, {0}};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->request_sent = request_length;
    watch(c, EPOLL_CTL_ADD);
}

static void send_request(struct client *c) {
    ssize_t gone = send(c->fd, request + c->request_sent, request_length - c->request_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    /* A connection that is lost is noticed by the read. */
    if (gone > 0) c->request_sent += (size_t)gone;
}

static void ask(struct client *c) {
    if (c->fd < 0) connect_client(c);
    answer_begin(&c->answer, plan.is_streamed);
    c->is_asking = true;
    c->request_sent = 0;
    c->asked_at = now_ns(CLOCK_MONOTONIC);
    asked++;
    asking++;
    send_request(c);
    if (c->request_sent < request_length) watch(c, EPOLL_CTL_MOD);
}

static void receive(struct client *c) {
    static char bytes[READ_BYTES];
    ssize_t got = recv(c->fd, bytes, READ_BYTES, MSG_DONTWAIT);
    uint64_t now = now_ns(CLOCK_MONOTONIC);
    if (got > 0) {
        int before = c->answer.tokens;
        bool has_ended = c->is_asking && answer_take(&c->answer, bytes, bytes + got);
        if (c->is_asking && !before && c->answer.tokens) keep(&firsts, now - c->asked_at);
        if (is_open) tokens += (size_t)(c->answer.tokens - before);
        if (has_ended) end_answer(c, now);
    } else if (!got || errno != EAGAIN) {
        close(c->fd);
        c->fd = -1;
        answer_fault(&c->answer, "the connection was lost");
        if (c->is_asking) end_answer(c, now);
    }
}

/* --- The run --------------------------------------------------------------------------------------------------- */

static void make_request(void) {
    char *padding = calloc(1, (size_t)plan.prompt_bytes + 1), *body;
    for (int i = 0; i < plan.prompt_bytes; i++) padding[i] = "lorem ipsum "[i % 12];
    int length = asprintf(&body,
                          "{\"model\":\"paced\",\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful "
                          "assistant.\"},{\"role\":\"user\",\"content\":\"%spaced %d %d\"}],\"max_tokens\":%d,"
                          "\"temperature\":0.7,\"stream\":%s}",
                          padding, plan.events, plan.gap_ms, plan.events, plan.is_streamed ? "true" : "false");
    int all = asprintf(&request,
                       "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nauthorization: Bearer %s\r\n"
                       "content-type: application/json\r\ncontent-length: %d\r\n\r\n%s",
                       plan.port, *plan.key ? plan.key : "none", length, body);
    if (length < 0 || all < 0) die("memory");
    request_length = (size_t)all;
}

/* CPU time of a process, by the clock that clock_getcpuclockid(3) composes; of one that is gone, 0. */
static uint64_t cpu_ns(int pid) { return now_ns((clockid_t)(((unsigned)~pid << 3) | 2)); }

static uint64_t clocks[MOST_PIDS + 1];

/* Turns the clocks into what has gone by on them since the last call. */
static void read_clocks(void) {
    for (int i = 0; i <= plan.number_of_pids; i++) {
        uint64_t now = i < plan.number_of_pids ? cpu_ns(plan.pids[i]) : now_ns(CLOCK_PROCESS_CPUTIME_ID);
        clocks[i] = now > clocks[i] ? now - clocks[i] : 0;
    }
}

static void run(struct client *clients) {
    uint64_t began = now_ns(CLOCK_MONOTONIC), answer_ns = (uint64_t)(plan.events - 1) * (uint64_t)plan.gap_ms * 1000000;
    uint64_t gives_up = 0;
    int begun = 0;
    struct epoll_event events[256];
    open_at = began + answer_ns + (uint64_t)(plan.settle * 1e9);
    while (!is_closing || (asking && now_ns(CLOCK_MONOTONIC) < gives_up)) {
        int number = epoll_wait(poll_fd, events, 256, 1);
        uint64_t now = now_ns(CLOCK_MONOTONIC);
        if (!is_open && !is_closing && now >= open_at) {
            read_clocks();
            open_at = now;
            is_open = true;
        } else if (is_open && now >= open_at + (uint64_t)(plan.seconds * 1e9)) {
            read_clocks();
            close_at = now;
            is_open = false;
            is_closing = true;
            gives_up = now + (uint64_t)(plan.tail * 1e9);
        }
        while (begun < plan.clients && now >= began + answer_ns * (uint64_t)begun / (uint64_t)plan.clients)
            ask(&clients[begun++]);
        for (int i = 0; i < number; i++) {
            struct client *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) {
                send_request(c);
                watch(c, EPOLL_CTL_MOD);
            }
            if (events[i].events & ~(uint32_t)EPOLLOUT) receive(c);
        }
    }
}

static int compare(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void print_times(const char *name, struct samples *samples) {
    if (!samples->number) {
        printf("\"%s\":null,", name);
        return;
    }
    size_t last = samples->number - 1;
    qsort(samples->ns, samples->number, sizeof *samples->ns, compare);
    printf("\"%s\":{\"p50\":%.1f,\"p99\":%.1f},", name, (double)samples->ns[last / 2] / 1e3,
           (double)samples->ns[(size_t)((double)last * 0.99)] / 1e3);
}

static void print_result(void) {
    double seconds = (double)(close_at - open_at) / 1e9;
    uint64_t system_ns = 0;
    for (int i = 1; i < plan.number_of_pids; i++) system_ns += clocks[i];
    printf("{\"seconds\":%.4f,\"answers\":%zu,\"events\":%zu,", seconds, answers_in_window, tokens);
    print_times("answer_us", &answers);
    print_times("first_token_us", &firsts);
    printf("\"asked\":%zu,\"clean\":%zu,\"unfinished\":%d,\"first_fault\":", asked, clean, asking);
    printf(first_fault ? "\"%s\"," : "null,", first_fault);
    printf("\"cpu_us\":{\"engine\":%.0f,\"system\":%.0f,\"load\":%.0f}}\n",
           plan.number_of_pids ? (double)clocks[0] / 1e3 : 0, (double)system_ns / 1e3,
           (double)clocks[plan.number_of_pids] / 1e3);
}

int main(int count, char **words) {
    static const struct option options[] = {
        {"port", 1, 0, 'p'},    {"clients", 1, 0, 'c'}, {"seconds", 1, 0, 's'}, {"settle", 1, 0, 'b'},
        {"tail", 1, 0, 't'},    {"events", 1, 0, 'e'},  {"gap-ms", 1, 0, 'g'},  {"prompt-bytes", 1, 0, 'l'},
        {"streamed", 0, 0, 'x'}, {"key", 1, 0, 'k'},     {"pids", 1, 0, 'i'},    {0, 0, 0, 0}};
    for (int option; (option = getopt_long(count, words, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p': plan.port = atoi(optarg); break;
        case 'c': plan.clients = atoi(optarg); break;
        case 's': plan.seconds = atof(optarg); break;
        case 'b': plan.settle = atof(optarg); break;
        case 't': plan.tail = atof(optarg); break;
        case 'e': plan.events = atoi(optarg); break;
        case 'g': plan.gap_ms = atoi(optarg); break;
        case 'l': plan.prompt_bytes = atoi(optarg); break;
        case 'x': plan.is_streamed = true; break;
        case 'k': plan.key = optarg; break;
        case 'i':
            for (char *pid = strtok(optarg, ","); pid && plan.number_of_pids < MOST_PIDS; pid = strtok(NULL, ","))
                plan.pids[plan.number_of_pids++] = atoi(pid);
            break;
        default: return 2;
        }
    }
    struct client *clients = calloc((size_t)plan.clients, sizeof *clients);
    if (!clients || (poll_fd = epoll_create1(0)) < 0) die("memory");
    make_request();
    for (int i = 0; i < plan.clients; i++) connect_client(&clients[i]);
    run(clients);
    print_result();
}
