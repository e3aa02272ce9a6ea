/* The engine of this benchmark: answers as vLLM does, on time, for next to no CPU time.
 *
 * `engine` listens on a free port of 127.0.0.1 and prints it. The words "paced EVENTS GAP_MS" anywhere in a request's
 * body say how many tokens its answer has and how far they are apart; without them it is one token. Words in a
 * message survive a system that writes the request anew. Without a gap the tokens leave BURST at a time.
 * Answers are far smaller than a socket's buffer: one that does not fit ends the engine, loudly.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 1024, READ_BYTES = 1 << 16, PIECE_BYTES = 1 << 14, BURST = 8, LONGEST_GAP_MS = SLOTS - 1 };

struct stream {
    int fd; /* -1 once the peer has left */
    char *in;
    size_t have, room;
    int events, sent, gap_ms;
    bool is_running, with_usage;
    uint64_t due_ms;
    struct stream *next; /* in its slot */
};

/* Streams by the millisecond that their next token is due in. */
static struct stream *slots[SLOTS];
static uint64_t at_ms;
static int running;
static unsigned long tokens;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

struct piece {
    size_t length;
    char text[PIECE_BYTES];
};

static void add(struct piece *piece, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    piece->length += (size_t)vsnprintf(piece->text + piece->length, PIECE_BYTES - piece->length, format, arguments);
    va_end(arguments);
    if (piece->length >= PIECE_BYTES) die("a piece is too long");
}

static void send_piece(struct stream *s, const struct piece *piece) {
    ssize_t gone = send(s->fd, piece->text, piece->length, MSG_NOSIGNAL | MSG_DONTWAIT);
    /* A peer that has left is noticed by the read. */
    if (gone < 0 && errno != EAGAIN) return;
    if (gone != (ssize_t)piece->length) die("a socket's buffer is full");
}

static void send_whole(struct stream *s, const char *type, const char *body) {
    struct piece piece = {0};
    add(&piece, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n%s", type, strlen(body), body);
    send_piece(s, &piece);
}

static void add_event(struct piece *piece, const char *choices_and_rest) {
    char event[1024];
    int length = snprintf(event, sizeof event,
                          "data: {\"id\":\"chatcmpl-b64a5e1cd1de4e5c\",\"object\":\"chat.completion.chunk\","
                          "\"created\":1790000000,\"model\":\"paced\",%s}\n\n",
                          choices_and_rest);
    add(piece, "%x\r\n%s\r\n", length, event);
}

/* Sends the next tokens, and what follows the last; then the stream waits for its slot again, or is over. */
static void send_tokens(struct stream *s) {
    struct piece piece = {0};
    char text[256];
    if (!s->sent)
        add(&piece, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n");
    for (int i = 0; i < (s->gap_ms ? 1 : BURST) && s->sent < s->events; i++, tokens++) {
        snprintf(text, sizeof text,
                 "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"w%d \"},\"logprobs\":null,"
                 "\"finish_reason\":null,\"token_ids\":null}]",
                 s->sent++);
        add_event(&piece, text);
    }
    if (s->sent == s->events) {
        add_event(&piece, "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":null,"
                          "\"finish_reason\":\"stop\",\"stop_reason\":null,\"token_ids\":null}]");
        if (s->with_usage) {
            snprintf(text, sizeof text,
                     "\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"total_tokens\":%d,\"completion_tokens\":%d}",
                     s->events + 7, s->events);
            add_event(&piece, text);
        }
        add(&piece, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
        s->is_running = false;
        running--;
    }
    send_piece(s, &piece);
}

static void run_stream(struct stream *s) {
    do send_tokens(s);
    while (s->is_running && !s->gap_ms);
    if (!s->is_running) return;
    s->due_ms += (uint64_t)s->gap_ms;
    /* An engine that is late does not skip a turn. */
    struct stream **slot = &slots[(s->due_ms > at_ms ? s->due_ms : at_ms + 1) % SLOTS];
    s->next = *slot;
    *slot = s;
}

static bool has(const char *body, size_t length, const char *name, const char *value) {
    const char *found = memmem(body, length, name, strlen(name));
    if (!found) return false;
    found += strlen(name);
    while (found < body + length && (*found == ' ' || *found == ':')) found++;
    return (size_t)(body + length - found) >= strlen(value) && !memcmp(found, value, strlen(value));
}

static void generate(struct stream *s, const char *body, size_t length) {
    int events = 1, gap_ms = 0;
    const char *words = memmem(body, length, "paced ", 6);
    /* The body is followed by a zero byte. */
    if (words) sscanf(words, "paced %d %d", &events, &gap_ms);
    if (!has(body, length, "\"stream\"", "true")) {
        tokens++;
        send_whole(s, "application/json",
                   "{\"id\":\"chatcmpl-b64a5e1cd1de4e5c\",\"object\":\"chat.completion\",\"created\":1790000000,"
                   "\"model\":\"paced\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
                   "\"content\":\"w0 \"},\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null}],"
                   "\"usage\":{\"prompt_tokens\":7,\"total_tokens\":8,\"completion_tokens\":1}}");
        return;
    }
    s->events = events > 0 ? events : 1;
    s->gap_ms = gap_ms < LONGEST_GAP_MS ? gap_ms : LONGEST_GAP_MS;
    s->with_usage = has(body, length, "\"include_usage\"", "true");
    s->sent = 0;
    s->is_running = true;
    s->due_ms = now_ns() / 1000000;
    running++;
    run_stream(s);
}

static void answer_look(struct stream *s, const char *path) {
    char text[512];
    if (!strncmp(path, "/v1/models ", 11)) {
        send_whole(s, "application/json",
                   "{\"object\":\"list\",\"data\":[{\"id\":\"paced\",\"object\":\"model\",\"owned_by\":\"vllm\","
                   "\"max_model_len\":2000000}]}");
    } else if (!strncmp(path, "/metrics ", 9)) {
        snprintf(text, sizeof text,
                 "vllm:num_requests_running{model_name=\"paced\",engine=\"0\"} %d\n"
                 "vllm:num_requests_waiting{model_name=\"paced\",engine=\"0\"} 0\n"
                 "vllm:generation_tokens_total{model_name=\"paced\",engine=\"0\"} %lu\n"
                 "process_start_time_seconds 1790000000\n",
                 running, tokens);
        send_whole(s, "text/plain", text);
    } else {
        send_whole(s, "application/json", "{}");
    }
}

static void leave(struct stream *s) {
    close(s->fd);
    s->fd = -1;
    free(s->in);
    /* One that waits in a slot is freed there. */
    if (!s->is_running) free(s);
}

/* Reads what has come, and answers once a request is complete; pipelining is not expected. */
static void receive(struct stream *s) {
    if (s->have + READ_BYTES + 1 > s->room) {
        s->room = 2 * (s->have + READ_BYTES + 1);
        if (!(s->in = realloc(s->in, s->room))) die("memory");
    }
    ssize_t got = recv(s->fd, s->in + s->have, READ_BYTES, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        leave(s);
        return;
    }
    s->have += (size_t)got;
    s->in[s->have] = 0;
    char *end = memmem(s->in, s->have, "\r\n\r\n", 4);
    if (!end) return;
    char *length_line = strcasestr(s->in, "\r\ncontent-length:");
    size_t length = length_line && length_line < end ? strtoul(length_line + 17, NULL, 10) : 0;
    char *body = end + 4;
    if (s->have - (size_t)(body - s->in) < length) return;
    s->have = 0;
    if (!strncmp(s->in, "GET ", 4)) answer_look(s, s->in + 4);
    else generate(s, body, length);
}

static void run_slot(struct stream *s) {
    for (struct stream *next; s; s = next) {
        next = s->next;
        if (s->fd >= 0) {
            run_stream(s);
        } else {
            running--;
            free(s);
        }
    }
}

/* Runs every slot that is due and returns how long the next one is away. */
static struct timespec run_due(void) {
    uint64_t now = now_ns();
    while (at_ms < now / 1000000) {
        struct stream *due = slots[++at_ms % SLOTS];
        slots[at_ms % SLOTS] = NULL;
        run_slot(due);
    }
    uint64_t ahead = 1;
    while (ahead < SLOTS && !slots[(at_ms + ahead) % SLOTS]) ahead++;
    uint64_t until = (at_ms + ahead) * 1000000;
    now = now_ns();
    uint64_t left = until > now ? until - now : 0;
    return (struct timespec){(time_t)(left / 1000000000), (long)(left % 1000000000)};
}

int main(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, poll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096)) die("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event event = {.events = EPOLLIN}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    at_ms = now_ns() / 1000000;
    for (;;) {
        struct timespec wait = run_due();
        int number = epoll_pwait2(poll, events, 256, &wait, NULL);
        if (number < 0 && errno != EINTR) die("epoll");
        for (int i = 0; i < number; i++) {
            if (events[i].data.ptr) {
                receive(events[i].data.ptr);
                continue;
            }
            int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
            if (fd < 0) continue;
            struct stream *s = calloc(1, sizeof *s);
            if (!s) die("memory");
            s->fd = fd;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            event = (struct epoll_event){.events = EPOLLIN, .data.ptr = s};
            epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
        }
    }
}
