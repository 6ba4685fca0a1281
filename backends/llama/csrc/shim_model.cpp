// The model: loading, description and pieces. All of it is read-only after loading.

#include "shim.h"

#include <cstring>

namespace qr {

namespace {

std::string meta(const llama_model * m, const char * key) {
    char buf[256] = {};
    return llama_model_meta_val_str(m, key, buf, sizeof buf) < 0 ? std::string() : std::string(buf);
}

qr_memory memory_of(const llama_model * m) {
    if (llama_model_is_recurrent(m)) {
        return QR_RECURRENT;
    }
    if (llama_model_is_hybrid(m)) {
        return QR_HYBRID;
    }
    return llama_model_n_swa(m) > 0 ? QR_SLIDING_WINDOW : QR_ATTENTION;
}

// What we decode with is one causal decoder; other kinds would run into assertions later.
const char * unsupported(const llama_model * m) {
    if (!llama_model_has_decoder(m)) {
        return "the model has no decoder: it can't generate text";
    }
    if (llama_model_has_encoder(m)) {
        return "encoder-decoder models are not supported";
    }
    if (llama_model_is_diffusion(m)) {
        return "diffusion models are not supported";
    }
    if (meta(m, (meta(m, "general.architecture") + ".attention.causal").c_str()) == "false") {
        return "the model's attention is not causal: it can't generate text";
    }
    return nullptr;
}

llama_model_params params_of(const qr_model_config & cfg) {
    llama_model_params p = llama_model_default_params();
    p.n_gpu_layers  = cfg.gpu_layers;
    p.load_mode     = cfg.mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    p.check_tensors = cfg.check_tensors != 0;
    // Without a callback llama.cpp prints dots.
    p.progress_callback = [](float, void *) { return true; };
    return p;
}

void copy_text(char * dst, size_t cap, const std::string & text) {
    const size_t n = text.size() < cap - 1 ? text.size() : cap - 1;
    memcpy(dst, text.data(), n);
    dst[n] = 0;
}

std::string piece_of(const llama_vocab * vocab, llama_token id) {
    std::string piece(32, 0);
    int32_t n = llama_token_to_piece(vocab, id, &piece[0], (int32_t) piece.size(), 0, true);
    if (n < 0) {
        piece.resize((size_t) -n);
        n = llama_token_to_piece(vocab, id, &piece[0], (int32_t) piece.size(), 0, true);
    }
    piece.resize(n < 0 ? 0 : (size_t) n);
    return piece;
}

uint8_t flags_of(const llama_vocab * vocab, llama_token id) {
    uint8_t flags = 0;
    if (llama_vocab_get_attr(vocab, id) & (LLAMA_TOKEN_ATTR_UNKNOWN | LLAMA_TOKEN_ATTR_CONTROL)) {
        flags |= QR_TOKEN_HIDDEN;
    }
    if (llama_vocab_is_control(vocab, id)) {
        flags |= QR_TOKEN_CONTROL;
    }
    if (llama_vocab_is_eog(vocab, id)) {
        flags |= QR_TOKEN_EOG;
    }
    return flags;
}

std::unique_ptr<qr_model> wrap(std::shared_ptr<llama_model> weights) {
    auto m = std::make_unique<qr_model>();
    m->vocab         = llama_model_get_vocab(weights.get());
    m->memory        = memory_of(weights.get());
    m->n_vocab       = llama_vocab_n_tokens(m->vocab);
    m->window        = llama_model_n_swa(weights.get());
    m->has_tokenizer = llama_vocab_type(m->vocab) != LLAMA_VOCAB_TYPE_NONE;
    m->weights       = std::move(weights);
    return m;
}

}  // namespace

}  // namespace qr

int32_t qr_model_load(const qr_model_config * cfg, qr_model ** out, char * err, size_t err_len) {
    return qr::guarded(err, err_len, [&]() -> int32_t {
        if (cfg == nullptr || cfg->path == nullptr || out == nullptr) {
            qr::put_error(err, err_len, "no path given");
            return QR_BAD_ARGUMENT;
        }
        const qr::capture log(QR_ERROR);
        std::shared_ptr<llama_model> weights(llama_model_load_from_file(cfg->path, qr::params_of(*cfg)),
                                             [](llama_model * m) { if (m != nullptr) { llama_model_free(m); } });
        if (weights == nullptr) {
            qr::put_error(err, err_len, log.text_or("llama.cpp refused the file and gave no reason"));
            return QR_FAILED;
        }
        if (const char * why = qr::unsupported(weights.get())) {
            qr::put_error(err, err_len, why);
            return QR_BAD_ARGUMENT;
        }
        *out = qr::wrap(std::move(weights)).release();
        return QR_OK;
    });
}

void qr_model_free(qr_model * m) { delete m; }

void qr_model_describe(const qr_model * m, qr_model_info * out) {
    qr::guarded(nullptr, 0, [&]() -> int32_t {
        *out = {};
        const llama_model * w = m->weights.get();
        llama_model_desc(w, out->description, sizeof out->description);
        qr::copy_text(out->architecture, sizeof out->architecture, qr::meta(w, "general.architecture"));
        out->memory        = m->memory;
        out->window        = m->window;
        out->vocabulary    = m->n_vocab;
        out->context       = llama_model_n_ctx_train(w);
        out->bytes         = llama_model_size(w);
        out->parameters    = llama_model_n_params(w);
        out->has_tokenizer = m->has_tokenizer;
        out->has_template  = llama_model_chat_template(w, nullptr) != nullptr;
        out->gpu           = llama_supports_gpu_offload();
        out->bos           = -1;
        if (m->has_tokenizer) {
            out->add_bos = llama_vocab_get_add_bos(m->vocab);
            out->bos     = llama_vocab_bos(m->vocab);
        }
        return QR_OK;
    });
}

int32_t qr_vocab(const qr_model * m, char * text, size_t cap, uint32_t * ends, uint8_t * flags, size_t * len,
                 char * err, size_t err_len) {
    return qr::guarded(err, err_len, [&]() -> int32_t {
        std::string all;
        for (int32_t id = 0; id < m->n_vocab; id++) {
            // A model without a tokenizer has ids but no pieces, and llama.cpp asserts when asked.
            if (m->has_tokenizer) {
                all += qr::piece_of(m->vocab, id);
            }
            ends[id]  = (uint32_t) all.size();
            flags[id] = m->has_tokenizer ? qr::flags_of(m->vocab, id) : 0;
        }
        *len = all.size();
        if (*len <= cap) {
            memcpy(text, all.data(), all.size());
        }
        return QR_OK;
    });
}
