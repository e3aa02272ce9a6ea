/* See answer.h. */
#define _GNU_SOURCE
#include "answer.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void answer_fault(struct answer *a, const char *what) {
    if (!a->fault) a->fault = what;
}

void answer_begin(struct answer *a, bool is_streamed) {
    a->part = HEAD;
    a->is_streamed = is_streamed;
    a->is_kept = true;
    a->is_chunked = a->has_finish = a->is_done = false;
    a->left = a->frame_length = a->text_length = 0;
    a->status = a->tokens = 0;
    a->fault = NULL;
}

static bool has(const char *text, size_t length, const char *what) { return memmem(text, length, what, strlen(what)); }

/* Looks for the next token, `"content":"wN "`, and for the finish reason, which is `"stop"`. */
static void take_json(struct answer *a, const char *text, size_t length) {
    if (!length || text[0] != '{' || text[length - 1] != '}') answer_fault(a, "an event is no JSON object");
    if (has(text, length, "\"error\"")) answer_fault(a, "an error within an answer");
    const char *end = text + length, *content = memmem(text, length, "\"content\":", 10);
    if (content) {
        content += 10;
        while (content < end && *content == ' ') content++;
        if (end - content > 2 && content[0] == '"' && content[1] == 'w') {
            if (atoi(content + 2) != a->tokens) answer_fault(a, "a token is missing, twice there or out of order");
            a->tokens++;
        }
    }
    if (has(text, length, "\"stop\"")) a->has_finish = true;
}

static void take_event_line(struct answer *a) {
    char *line = a->text;
    size_t length = a->text_length;
    if (length && line[length - 1] == '\r') length--;
    if (!length || line[0] == ':') return;
    if (a->is_done) answer_fault(a, "something follows [DONE]");
    if (length < 6 || memcmp(line, "data: ", 6)) answer_fault(a, "a line is no event");
    else if (length == 12 && !memcmp(line + 6, "[DONE]", 6)) a->is_done = true;
    else take_json(a, line + 6, length - 6);
}

/* Appends until a line's end; returns whether it has come. What is too long for a line is a fault. */
static bool take_line(struct answer *a, char *line, size_t *length, const char **at, const char *end) {
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    size_t more = (size_t)((newline ? newline : end) - *at);
    if (*length + more >= LINE_BYTES) {
        answer_fault(a, "a line is too long");
        *length = more = 0;
    }
    memcpy(line + *length, *at, more);
    *length += more;
    line[*length] = 0;
    *at += more + (newline != NULL);
    return newline;
}

static void take_payload(struct answer *a, const char *at, const char *end) {
    while (at < end) {
        bool is_line = take_line(a, a->text, &a->text_length, &at, end);
        if (!a->is_streamed || !is_line) continue;
        take_event_line(a);
        a->text_length = 0;
    }
}

static void take_head_line(struct answer *a) {
    if (!strncmp(a->frame, "HTTP/1.", 7)) a->status = atoi(a->frame + 9);
    else if (!strncasecmp(a->frame, "content-length:", 15)) a->left = strtoul(a->frame + 15, NULL, 10);
    else if (!strncasecmp(a->frame, "transfer-encoding:", 18)) a->is_chunked = strcasestr(a->frame, "chunked");
    else if (!strncasecmp(a->frame, "connection:", 11)) a->is_kept = !strcasestr(a->frame, "close");
}

/* Takes a line of the framing; returns whether the answer has ended with it. */
static bool take_frame_line(struct answer *a) {
    bool is_blank = !a->frame_length || (a->frame_length == 1 && a->frame[0] == '\r');
    switch (a->part) {
    case HEAD:
        take_head_line(a);
        if (is_blank) a->part = a->is_chunked ? CHUNK_SIZE : BODY;
        return is_blank && !a->is_chunked && !a->left;
    case CHUNK_SIZE:
        a->left = strtoul(a->frame, NULL, 16);
        a->part = a->left ? CHUNK : TRAILER;
        return false;
    case CHUNK_END:
        if (!is_blank) answer_fault(a, "a chunk is longer than it says");
        a->part = CHUNK_SIZE;
        return false;
    default:
        return is_blank;
    }
}

bool answer_take(struct answer *a, const char *at, const char *end) {
    bool has_ended = false;
    while (at < end && !has_ended) {
        if (a->part == CHUNK || a->part == BODY) {
            size_t more = (size_t)(end - at) < a->left ? (size_t)(end - at) : a->left;
            take_payload(a, at, at + more);
            at += more;
            a->left -= more;
            has_ended = !a->left && a->part == BODY;
            if (!a->left) a->part = CHUNK_END;
        } else if (take_line(a, a->frame, &a->frame_length, &at, end)) {
            has_ended = take_frame_line(a);
            a->frame_length = 0;
        }
    }
    if (at < end) answer_fault(a, "bytes follow the answer");
    return has_ended;
}

void answer_end(struct answer *a, int tokens) {
    if (a->status != 200) {
        a->fault = "a status other than 200";
        return;
    }
    if (a->is_streamed && a->text_length) answer_fault(a, "the last event is cut");
    if (!a->is_streamed) take_json(a, a->text, a->text_length);
    if (a->is_streamed && !a->is_done) answer_fault(a, "no [DONE]");
    if (!a->has_finish) answer_fault(a, "no finish reason");
    if (a->tokens != tokens) answer_fault(a, "tokens are missing");
}
