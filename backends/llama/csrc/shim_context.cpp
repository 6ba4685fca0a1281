// Contexts: what must hold before one is made, and its making.

#include "shim.h"

#include "ggml-cpu.h"

#include <algorithm>
#include <cinttypes>

namespace qr {

void threadpool_deleter::operator()(ggml_threadpool * p) const { ggml_threadpool_free(p); }

namespace {

std::string format(const char * fmt, long long a, long long b) {
    char buf[256];
    snprintf(buf, sizeof buf, fmt, a, b);
    return buf;
}

// Each of these ends in an assertion or in a silent wrong answer inside llama.cpp.
std::string bad_sizes(const qr_context_config & c) {
    const long long most = (long long) llama_max_parallel_sequences();
    if (c.context < 256) {
        return format("context of %lld tokens: at least %lld", c.context, 256);
    }
    if (c.sequences < 1 || c.sequences > most) {
        return format("%lld sequences: from 1 to %lld", c.sequences, most);
    }
    if (c.batch < 1 || c.batch > c.context) {
        return format("batch of %lld tokens: from 1 to the context's %lld", c.batch, c.context);
    }
    if (c.batch < c.sequences) {
        return format("batch of %lld tokens: not less than the %lld sequences", c.batch, c.sequences);
    }
    if (c.ubatch < 1 || c.ubatch > c.batch) {
        return format("ubatch of %lld tokens: from 1 to the batch's %lld", c.ubatch, c.batch);
    }
    if (c.outputs < c.sequences || c.outputs > c.batch) {
        return format("%lld outputs: from the number of sequences to the batch's %lld", c.outputs, c.batch);
    }
    return "";
}

std::string bad_threads(const qr_context_config & c, const pool * p) {
    if (c.threads < 1 || c.threads > GGML_MAX_N_THREADS) {
        return format("%lld threads: from 1 to %lld", c.threads, GGML_MAX_N_THREADS);
    }
    if (p != nullptr && c.threads > p->n) {
        return format("%lld threads: the pool has %lld", c.threads, p->n);
    }
    return "";
}

// Bytes this machine could still give, or 0 if it does not say.
uint64_t memory_available() {
    FILE * f = fopen("/proc/meminfo", "re");
    if (f == nullptr) {
        return 0;
    }
    char line[128];
    unsigned long long kb = 0;
    while (fgets(line, sizeof line, f) != nullptr) {
        if (sscanf(line, "MemAvailable: %llu kB", &kb) == 1) {
            break;
        }
    }
    fclose(f);
    return kb * 1024;
}

long long meta_number(const llama_model * m, const char * suffix, long long fallback) {
    char arch[64] = {}, value[64] = {};
    llama_model_meta_val_str(m, "general.architecture", arch, sizeof arch);
    const std::string key = std::string(arch) + suffix;
    return llama_model_meta_val_str(m, key.c_str(), value, sizeof value) < 0 ? fallback : atoll(value);
}

// The KV cache of a model that keeps all of it in every layer: cells * layers * heads * (key + value).
double kv_bytes(const qr_model & m, const qr_context_config & c) {
    const llama_model * w = m.weights.get();
    const int heads = std::max(1, llama_model_n_head(w));
    const double head = (double) llama_model_n_embd(w) / heads;
    const double row = (double) meta_number(w, ".attention.key_length", (long long) head) + (double) meta_number(w, ".attention.value_length", (long long) head);
    return (double) c.context * llama_model_n_layer(w) * llama_model_n_head_kv(w) * row * (c.kv_f32 ? 4 : 2);
}

// Linux hands out memory it does not have and kills the process later, so a context that can't fit is refused now.
std::string too_large(const qr_model & m, const qr_context_config & c) {
    if (m.memory == QR_HYBRID || m.memory == QR_RECURRENT || llama_supports_gpu_offload()) {
        return "";  // the estimate does not hold there
    }
    const double need = kv_bytes(m, c), have = (double) memory_available();
    if (have == 0 || need < have) {
        return "";
    }
    char buf[256];
    snprintf(buf, sizeof buf, "context of %d tokens: its KV cache takes %.1f GiB and %.1f GiB of memory are free", c.context,
             need / (1 << 30), have / (1 << 30));
    return buf;
}

llama_context_params params_of(const qr_context_config & c) {
    llama_context_params p = llama_context_default_params();
    p.n_ctx           = (uint32_t) c.context;
    p.n_batch         = (uint32_t) c.batch;
    p.n_ubatch        = (uint32_t) c.ubatch;
    p.n_seq_max       = (uint32_t) c.sequences;
    p.n_outputs_max   = (uint32_t) c.outputs;
    p.n_threads       = c.threads;
    p.n_threads_batch = c.threads;
    p.flash_attn_type = c.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.type_k          = c.kv_f32 ? GGML_TYPE_F32 : GGML_TYPE_F16;
    p.type_v          = p.type_k;
    p.swa_full        = c.swa_full != 0;
    p.kv_unified      = c.unified != 0;
    return p;
}

// The batch's arrays never move, so that the pointers handed out stay right.
void size_arrays(qr_context & c) {
    const size_t n = (size_t) c.info.batch;
    c.token.assign(n, 0);
    c.pos.assign(n, 0);
    c.seq.assign(n, 0);
    c.n_seq.assign(n, 1);
    c.output.assign(n, 0);
    c.rows.assign(n, nullptr);
    c.seq_ptr.resize(n);
    for (size_t i = 0; i < n; i++) {
        c.seq_ptr[i] = &c.seq[i];
    }
    c.next.assign((size_t) c.info.sequences, -1);
    c.stale.assign((size_t) c.info.sequences, 0);
}

std::unique_ptr<qr_context> wrap(qr_model & m, const qr_context_config & cfg, std::unique_ptr<llama_context, context_deleter> llama) {
    auto c = std::make_unique<qr_context>();
    c->info.context    = (int32_t) std::min((uint32_t) cfg.context, llama_n_ctx_seq(llama.get()));
    c->info.batch      = (int32_t) std::min((uint32_t) cfg.batch, llama_n_batch(llama.get()));
    c->info.ubatch     = (int32_t) llama_n_ubatch(llama.get());
    c->info.sequences  = cfg.sequences;
    c->info.outputs    = cfg.outputs;
    c->info.memory     = m.memory;
    c->info.vocabulary = m.n_vocab;
    c->window          = m.window;
    c->threads         = cfg.threads;
    c->unified         = cfg.unified != 0;
    c->weights         = m.weights;
    c->llama           = std::move(llama);
    c->error.reserve(1024);
    size_arrays(*c);
    return c;
}

void attach(qr_context & c, const std::shared_ptr<pool> & p) {
    if (p != nullptr) {
        c.pool = p;
        llama_attach_threadpool(c.llama.get(), p->threads.get(), p->threads.get());
    }
    llama_set_abort_callback(
        c.llama.get(), [](void * data) { return ((qr_context *) data)->interrupted.load(std::memory_order_relaxed) != 0; }, &c);
}

}  // namespace

}  // namespace qr

int32_t qr_pool_new(int32_t threads, int32_t poll, qr_pool ** out, char * err, size_t err_len) {
    return qr::guarded(err, err_len, [&]() -> int32_t {
        if (threads < 1 || threads > GGML_MAX_N_THREADS || poll < 0 || poll > 100) {
            qr::put_error(err, err_len, "thread pool: from 1 to 512 threads and a poll level from 0 to 100");
            return QR_BAD_ARGUMENT;
        }
        ggml_threadpool_params p = ggml_threadpool_params_default(threads);
        p.poll = (uint32_t) poll;
        auto made = std::make_unique<qr_pool>();
        made->impl = std::make_shared<qr::pool>();
        made->impl->n = threads;
        made->impl->threads.reset(ggml_threadpool_new(&p));
        if (made->impl->threads == nullptr) {
            qr::put_error(err, err_len, "thread pool: the threads could not be started");
            return QR_FAILED;
        }
        *out = made.release();
        return QR_OK;
    });
}

void qr_pool_free(qr_pool * p) { delete p; }

int32_t qr_context_new(qr_model * m, const qr_context_config * cfg, qr_pool * pool, qr_context ** out, char * err, size_t err_len) {
    return qr::guarded(err, err_len, [&]() -> int32_t {
        const std::shared_ptr<qr::pool> threads = pool == nullptr ? nullptr : pool->impl;
        for (const std::string & why : { qr::bad_sizes(*cfg), qr::bad_threads(*cfg, threads.get()), qr::too_large(*m, *cfg) }) {
            if (!why.empty()) {
                qr::put_error(err, err_len, why);
                return QR_BAD_ARGUMENT;
            }
        }
        const qr::capture log(QR_ERROR);
        std::unique_ptr<llama_context, qr::context_deleter> llama(llama_init_from_model(m->weights.get(), qr::params_of(*cfg)));
        if (llama == nullptr) {
            qr::put_error(err, err_len, log.text_or("llama.cpp made no context and gave no reason"));
            return QR_FAILED;
        }
        auto made = qr::wrap(*m, *cfg, std::move(llama));
        qr::attach(*made, threads);
        *out = made.release();
        return QR_OK;
    });
}

void qr_context_free(qr_context * c) { delete c; }

void qr_context_describe(const qr_context * c, qr_context_info * out) { *out = c->info; }

void qr_context_batch(qr_context * c, qr_batch * out) {
    *out = { c->info.batch, c->token.data(), c->pos.data(), c->seq.data(), c->output.data(), c->rows.data() };
}

void qr_set_threads(qr_context * c, int32_t n) {
    const int32_t threads = std::max(1, std::min(n, c->threads));
    llama_set_n_threads(c->llama.get(), threads, threads);
}

const char * qr_context_error(const qr_context * c) { return c->error.c_str(); }

void qr_interrupt(qr_context * c, int32_t on) { c->interrupted.store(on, std::memory_order_relaxed); }
