// Decoding and the sequences of a context. A design note on the "stale" sequences is in engine/design.md.

#include "shim.h"

#include <algorithm>
#include <cstring>

namespace qr {

namespace {

template <class... Args> int32_t refuse(qr_context & c, int32_t code, const char * fmt, Args... args) {
    char buf[256];
    snprintf(buf, sizeof buf, fmt, args...);
    c.error = buf;
    return code;
}

bool keeps_state(const qr_context & c) { return c.info.memory == QR_HYBRID || c.info.memory == QR_RECURRENT; }

bool known(const qr_context & c, int32_t seq) { return seq >= 0 && seq < c.info.sequences; }

llama_memory_t memory(const qr_context & c) { return llama_get_memory(c.llama.get()); }

int32_t check_entry(qr_context & c, int32_t i) {
    const int32_t token = c.token[i], seq = c.seq[i], pos = c.pos[i];
    if (token < 0 || token >= c.info.vocabulary) {
        return refuse(c, QR_BAD_BATCH, "batch entry %d: token %d is not one of the vocabulary's %d", i, token, c.info.vocabulary);
    }
    if (!known(c, seq)) {
        return refuse(c, QR_BAD_BATCH, "batch entry %d: sequence %d is not one of the context's %d", i, seq, c.info.sequences);
    }
    if (pos < 0) {
        return refuse(c, QR_BAD_BATCH, "batch entry %d: position %d is negative", i, pos);
    }
    // Recurrent models would go on for ever, the others would answer "no cells" much later.
    if (pos >= c.info.context) {
        return refuse(c, QR_CONTEXT_FULL, "batch entry %d: position %d, and the context holds %d tokens", i, pos, c.info.context);
    }
    if (c.stale[seq]) {
        return refuse(c, QR_STALE, "sequence %d has no defined state since its decode was interrupted: remove it or copy another over it", seq);
    }
    // Two entries of one sequence at one position are accepted by llama.cpp and see each other: silently wrong.
    if (c.next[seq] >= 0 && pos != c.next[seq]) {
        return refuse(c, QR_BAD_BATCH, "batch entry %d: sequence %d goes on at position %d, not %d", i, seq, c.next[seq], pos);
    }
    c.next[seq] = pos + 1;
    return QR_OK;
}

int32_t check_batch(qr_context & c, int32_t n) {
    if (n < 1 || n > c.info.batch) {
        return refuse(c, QR_BAD_BATCH, "batch of %d tokens: from 1 to %d", n, c.info.batch);
    }
    std::fill(c.next.begin(), c.next.end(), -1);
    int32_t outputs = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t code = check_entry(c, i);
        if (code != QR_OK) {
            return code;
        }
        outputs += c.output[i] != 0;
    }
    if (outputs > c.info.outputs) {
        return refuse(c, QR_BAD_BATCH, "batch asks for %d rows of logits: at most %d", outputs, c.info.outputs);
    }
    return QR_OK;
}

// An aborted ubatch counts as done in a recurrent state although it is not (pos_max has moved).
void mark_stale(qr_context & c, int32_t n) {
    if (!keeps_state(c)) {
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        c.stale[c.seq[i]] = 1;
    }
}

int32_t run(qr_context & c, int32_t n) {
    llama_batch batch = {};
    batch.n_tokens = n;
    batch.token    = c.token.data();
    batch.pos      = c.pos.data();
    batch.n_seq_id = c.n_seq.data();
    batch.seq_id   = c.seq_ptr.data();
    batch.logits   = c.output.data();
    if (c.pool == nullptr) {
        return llama_decode(c.llama.get(), batch);
    }
    const std::lock_guard<std::mutex> hold(c.pool->running);
    return llama_decode(c.llama.get(), batch);
}

void keep_rows(qr_context & c, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        c.rows[i] = c.output[i] ? llama_get_logits_ith(c.llama.get(), i) : nullptr;
    }
}

int32_t after_failure(qr_context & c, int32_t n, int32_t ret, const capture & log) {
    switch (ret) {
        case 1:
            return refuse(c, QR_NO_CELLS, "no free KV cells for %d tokens", n);
        case 2:
            mark_stale(c, n);
            return refuse(c, QR_INTERRUPTED, "interrupted");
        case -1:
            c.error = log.text_or("llama.cpp refused the batch");
            return QR_BAD_BATCH;
        default:
            mark_stale(c, n);
            c.error = log.text_or("llama.cpp failed");
            return QR_COMPUTE;
    }
}

int32_t decode(qr_context & c, int32_t n) {
    std::fill(c.rows.begin(), c.rows.end(), nullptr);
    const int32_t code = check_batch(c, n);
    if (code != QR_OK) {
        return code;
    }
    // Asked before it began: nothing has changed, so nothing becomes stale.
    if (c.interrupted.load(std::memory_order_relaxed) != 0) {
        return refuse(c, QR_INTERRUPTED, "interrupted");
    }
    const capture log(QR_WARN);
    const int32_t ret = run(c, n);
    if (ret != 0) {
        return after_failure(c, n, ret, log);
    }
    keep_rows(c, n);
    return QR_OK;
}

bool covers(int32_t p0, int32_t p1, int32_t pos_max) { return p0 <= 0 && (p1 < 0 || p1 > pos_max); }

// A tail may be cut off a sliding window only if the window before the cut is still there: llama.cpp says yes even
// then, and goes on wrongly.
bool window_lost(const qr_context & c, int32_t seq, int32_t p0) {
    if (c.info.memory != QR_SLIDING_WINDOW || p0 <= 0) {
        return false;
    }
    return llama_memory_seq_pos_min(memory(c), seq) > std::max(0, p0 - c.window);
}

// Recurrent states can't give back a part; on hybrids llama.cpp sometimes says yes and removes only the other half.
bool removable(const qr_context & c, int32_t seq, int32_t p0, int32_t p1) {
    const int32_t last = llama_memory_seq_pos_max(memory(c), seq);
    if (last < 0 || p0 > last || covers(p0, p1, last)) {
        return true;
    }
    return !keeps_state(c) && !window_lost(c, seq, p0);
}

}  // namespace

}  // namespace qr

int32_t qr_decode(qr_context * c, int32_t n) {
    try {
        return qr::decode(*c, n);
    } catch (const std::exception & e) {
        std::fill(c->stale.begin(), c->stale.end(), qr::keeps_state(*c) ? 1 : 0);
        c->error.assign(e.what(), std::min<size_t>(strlen(e.what()), c->error.capacity()));
    } catch (...) {
        c->error.assign("unknown C++ exception");
    }
    return QR_COMPUTE;
}

int32_t qr_seq_copy(qr_context * c, int32_t src, int32_t dst, int32_t p0, int32_t p1) {
    return qr::guarded(nullptr, 0, [&]() -> int32_t {
        if (!qr::known(*c, src) || !qr::known(*c, dst)) {
            return qr::refuse(*c, QR_BAD_ARGUMENT, "copy sequence %d to %d: ids are from 0 to %d", src, dst, c->info.sequences - 1);
        }
        if (p0 >= 0 && p1 >= 0 && p0 > p1) {
            return qr::refuse(*c, QR_BAD_ARGUMENT, "copy sequence %d: range from %d to %d", src, p0, p1);
        }
        if (c->stale[src]) {
            return qr::refuse(*c, QR_STALE, "copy sequence %d: its decode was interrupted, it has no defined state", src);
        }
        if (src == dst) {
            return QR_OK;
        }
        const int32_t last = llama_memory_seq_pos_max(qr::memory(*c), src);
        if (!c->unified && !qr::covers(p0, p1, last)) {
            return qr::refuse(*c, QR_BAD_ARGUMENT, "copy sequence %d: a split cache copies whole sequences only", src);
        }
        llama_memory_seq_cp(qr::memory(*c), src, dst, c->unified ? p0 : -1, c->unified ? p1 : -1);
        // Whatever part is copied, a recurrent state is replaced whole.
        c->stale[dst] = 0;
        return QR_OK;
    });
}

int32_t qr_seq_remove(qr_context * c, int32_t seq, int32_t p0, int32_t p1) {
    return qr::guarded(nullptr, 0, [&]() -> int32_t {
        if (!qr::known(*c, seq)) {
            return qr::refuse(*c, QR_BAD_ARGUMENT, "remove from sequence %d: ids are from 0 to %d", seq, c->info.sequences - 1);
        }
        if (p0 >= 0 && p1 >= 0 && p0 > p1) {
            return qr::refuse(*c, QR_BAD_ARGUMENT, "remove from sequence %d: range from %d to %d", seq, p0, p1);
        }
        if (!qr::removable(*c, seq, p0, p1)) {
            return 0;
        }
        const bool whole = qr::covers(p0, p1, llama_memory_seq_pos_max(qr::memory(*c), seq));
        const bool removed = llama_memory_seq_rm(qr::memory(*c), seq, whole ? -1 : p0, whole ? -1 : p1);
        if (whole && removed) {
            c->stale[seq] = 0;
        }
        return removed;
    });
}

static int32_t position(qr_context * c, int32_t seq, llama_pos (*of)(llama_memory_t, llama_seq_id)) {
    int32_t pos = -1;
    qr::guarded(nullptr, 0, [&]() -> int32_t {
        if (qr::known(*c, seq)) {
            pos = of(qr::memory(*c), seq);
        }
        return QR_OK;
    });
    return pos;
}

int32_t qr_seq_pos_min(qr_context * c, int32_t seq) { return position(c, seq, llama_memory_seq_pos_min); }

int32_t qr_seq_pos_max(qr_context * c, int32_t seq) { return position(c, seq, llama_memory_seq_pos_max); }

int32_t qr_clear(qr_context * c) {
    return qr::guarded(nullptr, 0, [&]() -> int32_t {
        llama_memory_clear(qr::memory(*c), true);
        std::fill(c->stale.begin(), c->stale.end(), 0);
        std::fill(c->rows.begin(), c->rows.end(), nullptr);
        return QR_OK;
    });
}

size_t qr_state_size(qr_context * c, int32_t seq) {
    size_t size = 0;
    qr::guarded(nullptr, 0, [&]() -> int32_t {
        if (qr::known(*c, seq)) {
            size = llama_state_seq_get_size(c->llama.get(), seq);
        }
        return QR_OK;
    });
    return size;
}
