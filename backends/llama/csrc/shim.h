// What the parts of the shim share. Nothing here is seen from outside; the interface is qr.h.
#pragma once

#include "qr.h"

#include "chat.h"
#include "llama.h"

#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace qr {

// Writes text to the caller's buffer, cut to fit.
void put_error(char * err, size_t err_len, const std::string & text) noexcept;

// Runs f and turns whatever it throws into QR_FAILED and a text. Every exported function body goes through it.
template <class F> int32_t guarded(char * err, size_t err_len, F && f) noexcept {
    try {
        return f();
    } catch (const std::bad_alloc &) {
        put_error(err, err_len, "out of memory");
    } catch (const std::exception & e) {
        put_error(err, err_len, e.what());
    } catch (...) {
        put_error(err, err_len, "unknown C++ exception");
    }
    return QR_FAILED;
}

// While one lives, what llama.cpp logs on this thread at or above a level is kept here instead of being written:
// the text goes into the error that is returned, and is not reported twice.
class capture {
public:
    explicit capture(qr_level from);
    ~capture();
    capture(const capture &)             = delete;
    capture & operator=(const capture &) = delete;

    // The captured lines joined, or fallback if there are none.
    std::string text_or(const char * fallback) const;
    void        add(const std::string & line);
    qr_level    from() const { return from_; }

private:
    qr_level    from_;
    std::string text_;
    capture *   outer_;
};

void start_log(qr_level min_level);

struct context_deleter {
    void operator()(llama_context * c) const { llama_free(c); }
};

struct threadpool_deleter {
    void operator()(ggml_threadpool * p) const;
};

// A thread pool and the lock that keeps it to one decode at a time, which ggml requires and does not check.
struct pool {
    std::mutex                                           running;
    std::unique_ptr<ggml_threadpool, threadpool_deleter> threads;
    int32_t                                              n = 0;
};

// A parsed chat format, kept because one answer is parsed many times while it streams.
struct parser_entry {
    std::string                                      format;
    std::shared_ptr<const common_chat_parser_params> params;
};

}  // namespace qr

struct qr_model {
    std::shared_ptr<llama_model> weights;
    const llama_vocab *          vocab = nullptr;
    qr_memory                    memory = QR_ATTENTION;
    int32_t                      n_vocab = 0;
    int32_t                      window = 0;
    bool                         has_tokenizer = false;

    // templates is made on first use and then only read; template_error says why it could not be made.
    std::mutex                     chat_lock;  // guards the five fields below
    bool                           templates_tried = false;
    common_chat_templates_ptr      templates;
    std::string                    template_error;
    std::vector<qr::parser_entry>  parsers;  // most recent last
};

struct qr_pool {
    std::shared_ptr<qr::pool> impl;
};

struct qr_context {
    // Order matters: destroyed from the last to the first, the context before the pool and weights it uses.
    std::shared_ptr<llama_model>                         weights;
    std::shared_ptr<qr::pool>                            pool;
    std::unique_ptr<llama_context, qr::context_deleter>  llama;

    qr_context_info info   = {};
    int32_t         window = 0;
    int32_t         threads = 1;
    bool            unified = true;
    std::string     error;

    std::atomic<int32_t> interrupted{0};

    std::vector<int32_t>   token, pos, seq, n_seq;
    std::vector<int32_t *> seq_ptr;
    std::vector<int8_t>    output;
    std::vector<float *>   rows;
    std::vector<int32_t>   next;   // scratch of the batch check: next position per sequence, -1 = not in this batch
    std::vector<uint8_t>   stale;  // per sequence: an aborted decode left a recurrent state undefined
};
