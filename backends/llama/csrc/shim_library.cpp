// The library as a whole: start, version, and the check that this shim was compiled against the llama.cpp it runs.

#include "shim.h"

#include "ggml.h"

#include <cstddef>
#include <cstring>

// A llama.cpp whose structs differ must fail here, when it is compiled, not by reading a wrong byte later.
static_assert(sizeof(llama_context_params) == 160, "llama_context_params differs from the supported llama.cpp");
static_assert(offsetof(llama_context_params, n_outputs_max) == 20, "llama_context_params differs from the supported llama.cpp");
static_assert(offsetof(llama_context_params, type_k) == 104, "llama_context_params differs from the supported llama.cpp");
static_assert(offsetof(llama_context_params, swa_full) == 132, "llama_context_params differs from the supported llama.cpp");
static_assert(sizeof(llama_model_params) == 80, "llama_model_params differs from the supported llama.cpp");
static_assert(offsetof(llama_model_params, load_mode) == 24, "llama_model_params differs from the supported llama.cpp");
static_assert(offsetof(llama_model_params, check_tensors) == 73, "llama_model_params differs from the supported llama.cpp");
static_assert(sizeof(llama_batch) == 56, "llama_batch differs from the supported llama.cpp");

namespace qr {

void put_error(char * err, size_t err_len, const std::string & text) noexcept {
    if (err == nullptr || err_len == 0) {
        return;
    }
    const size_t n = text.size() < err_len - 1 ? text.size() : err_len - 1;
    memcpy(err, text.data(), n);
    err[n] = 0;
}

// The defaults double as sentinels: a field that moved would show another value here.
static std::string mismatch() {
    const llama_context_params c = llama_context_default_params();
    if (c.n_ctx != 512 || c.n_batch != 2048 || c.n_ubatch != 512 || c.n_seq_max != 1 || c.n_outputs_max_per_seq != 1) {
        return "sizes in llama_context_default_params";
    }
    if (c.type_k != GGML_TYPE_F16 || c.type_v != GGML_TYPE_F16 || !c.swa_full || c.kv_unified || !c.offload_kqv) {
        return "cache settings in llama_context_default_params";
    }
    const llama_model_params m = llama_model_default_params();
    if (m.n_gpu_layers != -1 || m.split_mode != LLAMA_SPLIT_MODE_LAYER || !m.use_extra_bufts || m.check_tensors || m.vocab_only) {
        return "values in llama_model_default_params";
    }
#ifdef QR_LLAMA_VERSION
    if (strcmp(llama_version(), QR_LLAMA_VERSION) != 0) {
        return std::string("version ") + llama_version() + ", compiled for " + QR_LLAMA_VERSION;
    }
#endif
    return "";
}

static const std::string & version_text() {
    static const std::string text = std::string("llama.cpp ") + llama_version() + ", ggml " + ggml_version() + " (" + ggml_commit() + ")";
    return text;
}

static const std::string & system_text() {
    static const std::string text = llama_print_system_info();
    return text;
}

}  // namespace qr

int32_t qr_abi(void) { return QR_ABI; }

int32_t qr_init(int32_t min_level, char * err, size_t err_len) {
    return qr::guarded(err, err_len, [&]() -> int32_t {
        if (min_level < QR_DEBUG || min_level > QR_SILENT) {
            qr::put_error(err, err_len, "log level out of range");
            return QR_BAD_ARGUMENT;
        }
        qr::start_log((qr_level) min_level);
        const std::string what = qr::mismatch();
        if (!what.empty()) {
            qr::put_error(err, err_len, "llama.cpp differs from the one compiled against: " + what);
            return QR_FAILED;
        }
        llama_backend_init();
        return QR_OK;
    });
}

const char * qr_version(void) {
    try {
        return qr::version_text().c_str();
    } catch (...) {
        return "unknown";
    }
}

const char * qr_system_info(void) {
    try {
        return qr::system_text().c_str();
    } catch (...) {
        return "unknown";
    }
}
