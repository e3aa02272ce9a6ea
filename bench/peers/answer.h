/* One answer as it comes: its framing taken off, every event held against what the engine sends. */
#ifndef ANSWER_H
#define ANSWER_H

#include <stdbool.h>
#include <stddef.h>

enum { LINE_BYTES = 1 << 13 };

/* What comes next on the connection. */
enum part { HEAD, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, BODY };

struct answer {
    enum part part;
    bool is_streamed, is_chunked, is_kept, has_finish, is_done;
    size_t left; /* of the chunk or the body */
    int status, tokens;
    const char *fault; /* the first that was found; NULL: none */
    size_t frame_length, text_length;
    char frame[LINE_BYTES], text[LINE_BYTES];
};

void answer_begin(struct answer *answer, bool is_streamed);

/* Takes bytes of the answer; returns whether it has ended with them. */
bool answer_take(struct answer *answer, const char *at, const char *end);

/* Notes that something is wrong, unless something was before. */
void answer_fault(struct answer *answer, const char *what);

/* Holds an answer that is over against what was due: so many tokens, a finish reason, streamed a [DONE]. */
void answer_end(struct answer *answer, int tokens);

#endif
