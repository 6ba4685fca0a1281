// Tokenizing, on a stack that is large enough. Byte-pair tokenizers whose pattern llama.cpp has no code of its own for
// cut the text with std::regex, which recurses once per character of a match, some 330 bytes each: 26,000 letters in a
// row overrun the usual 8 MiB and kill the process.

#include "shim.h"

#include <algorithm>
#include <exception>
#include <pthread.h>

namespace qr {

namespace {

const size_t safe_stretch     = 2000;             // characters that any stack has room for
const size_t longest_stretch  = (size_t) 1 << 20; // characters; one more is refused
const size_t stack_per_letter = 1024;             // bytes, three times what was measured
const size_t stack_base       = (size_t) 1 << 20;

bool is_space(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The longest part of the text that one match of a pattern may cover: patterns stop at the end of a line, or go on
// over white space only.
size_t stretch_of(const char * text, size_t len) {
    size_t longest = 0, line = 0, space = 0;
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char) text[i];
        if ((c & 0xc0) == 0x80) {
            continue;  // inside a character
        }
        line    = c == '\n' ? 0 : line + 1;
        space   = is_space(c) ? space + 1 : 0;
        longest = std::max(longest, std::max(line, space));
    }
    return longest;
}

struct job {
    const llama_vocab * vocab;
    const char *        text;
    int32_t             len;
    int32_t *           out;
    int32_t             cap;
    bool                add_special, parse_special;
    int32_t             got;
    std::exception_ptr  thrown;
};

void run(job & j) {
    j.got = llama_tokenize(j.vocab, j.text, j.len, j.out, j.cap, j.add_special, j.parse_special);
}

void * run_on_thread(void * arg) {
    job & j = *(job *) arg;
    try {
        run(j);
    } catch (...) {
        j.thrown = std::current_exception();
    }
    return nullptr;
}

void run_on_stack_of(job & j, size_t bytes) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_t thread;
    const bool started = pthread_attr_setstacksize(&attr, bytes) == 0 && pthread_create(&thread, &attr, run_on_thread, &j) == 0;
    pthread_attr_destroy(&attr);
    if (!started) {
        throw std::bad_alloc();
    }
    pthread_join(thread, nullptr);
    if (j.thrown) {
        std::rethrow_exception(j.thrown);
    }
}

// A line end may follow white space and be followed by it in one match, hence twice the stretch.
size_t stack_for(size_t stretch) { return stack_base + 2 * stretch * stack_per_letter; }

}  // namespace

}  // namespace qr

int32_t qr_tokenize(const qr_model * m, const char * text, size_t len, int32_t add_special, int32_t parse_special,
                    int32_t * out, size_t cap, size_t * n, char * err, size_t err_len) {
    return qr::guarded(err, err_len, [&]() -> int32_t {
        if (!m->has_tokenizer) {
            qr::put_error(err, err_len, "the model has no tokenizer");
            return QR_BAD_ARGUMENT;
        }
        if (len > INT32_MAX || cap > INT32_MAX) {
            qr::put_error(err, err_len, "text of 2 GiB or more");
            return QR_BAD_ARGUMENT;
        }
        qr::job j = { m->vocab, text, (int32_t) len, out, (int32_t) cap, add_special != 0, parse_special != 0, 0, nullptr };
        const bool recurses = llama_vocab_type(m->vocab) == LLAMA_VOCAB_TYPE_BPE;
        const size_t stretch = recurses ? qr::stretch_of(text, len) : 0;
        if (stretch > qr::longest_stretch) {
            qr::put_error(err, err_len, "text with " + std::to_string(stretch) + " characters without a line break");
            return QR_BAD_ARGUMENT;
        }
        if (stretch > qr::safe_stretch) {
            qr::run_on_stack_of(j, qr::stack_for(stretch));
        } else {
            qr::run(j);
        }
        if (j.got == INT32_MIN) {
            qr::put_error(err, err_len, "the text has too many tokens");
            return QR_BAD_ARGUMENT;
        }
        *n = (size_t) (j.got < 0 ? -j.got : j.got);
        return QR_OK;
    });
}
