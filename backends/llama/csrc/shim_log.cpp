// Logging: llama.cpp's pieces become one JSON line per message on stderr, each written with one write(2), so that the
// parent process can forward them with their level.

#include "shim.h"

#include "ggml-backend.h"
#include "log.h"

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>

namespace qr {

namespace {

thread_local capture * active_capture = nullptr;

// The state of the log. ggml's callback carries a user pointer, but its abort callback does not, hence one object.
struct log_state {
    std::mutex lock;  // guards pending, pending_level
    std::string pending;
    qr_level    pending_level = QR_INFO;
    std::atomic<int32_t> min_level{QR_WARN};
};

log_state & state() {
    static log_state s;
    return s;
}

const char * name_of(qr_level level) {
    switch (level) {
        case QR_DEBUG: return "DEBUG";
        case QR_INFO:  return "INFO";
        case QR_WARN:  return "WARN";
        default:       return "ERROR";
    }
}

void append_escaped(std::string & out, const std::string & text) {
    static const char hex[] = "0123456789abcdef";
    for (const unsigned char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += (char) c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (c < 0x20 || c >= 0x7f) {
            // Bytes over 0x7e are written one by one as \u00xx: logs need not render, they must stay valid JSON.
            out += "\\u00";
            out += hex[c >> 4];
            out += hex[c & 15];
        } else {
            out += (char) c;
        }
    }
}

std::string now_rfc3339() {
    timespec ts = {};
    clock_gettime(CLOCK_REALTIME, &ts);
    tm parts = {};
    gmtime_r(&ts.tv_sec, &parts);
    char date[32], out[48];
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out, sizeof out, "%s.%03ldZ", date, ts.tv_nsec / 1000000);
    return out;
}

void write_line(qr_level level, const std::string & msg) {
    std::string line = "{\"time\":\"" + now_rfc3339() + "\",\"level\":\"" + name_of(level) + "\",\"source\":\"llama.cpp\",\"msg\":\"";
    append_escaped(line, msg);
    line += "\"}\n";
    // A log that can't be written has nowhere to be reported.
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
        return;
    }
}

void trim_right(std::string & s) {
    while (!s.empty() && (s.back() == '\n' || s.back() == '\r' || s.back() == ' ')) {
        s.pop_back();
    }
}

// Progress dots carry nothing once they are lines of a log.
bool worth_writing(const std::string & s) {
    return s.find_first_not_of(". \n") != std::string::npos;
}

void emit(qr_level level, std::string msg) {
    trim_right(msg);
    if (!worth_writing(msg)) {
        return;
    }
    if (active_capture != nullptr && level >= active_capture->from()) {
        active_capture->add(msg);
        return;
    }
    if (level >= state().min_level.load(std::memory_order_relaxed)) {
        write_line(level, msg);
    }
}

qr_level level_of(ggml_log_level level) {
    switch (level) {
        case GGML_LOG_LEVEL_DEBUG: return QR_DEBUG;
        case GGML_LOG_LEVEL_WARN:  return QR_WARN;
        case GGML_LOG_LEVEL_ERROR: return QR_ERROR;
        default:                   return QR_INFO;
    }
}

// Collects pieces until a line is whole. A new message ends an unfinished one.
void on_log(ggml_log_level level, const char * text, void *) {
    try {
        log_state & s = state();
        const std::lock_guard<std::mutex> hold(s.lock);
        if (level != GGML_LOG_LEVEL_CONT) {
            if (!s.pending.empty()) {
                emit(s.pending_level, std::move(s.pending));
            }
            s.pending.clear();
            s.pending_level = level_of(level);
        }
        s.pending += text;
        if (!s.pending.empty() && s.pending.back() == '\n') {
            emit(s.pending_level, std::move(s.pending));
            s.pending.clear();
        }
    } catch (...) {
        // Called from C code that can't unwind; losing a log line is the lesser harm.
    }
}

void on_abort(const char * message) {
    try {
        write_line(QR_ERROR, std::string("abort: ") + message);
    } catch (...) {
    }
}

}  // namespace

capture::capture(qr_level from) : from_(from), outer_(active_capture) { active_capture = this; }

capture::~capture() { active_capture = outer_; }

// llama.cpp starts most lines with the name of a function, which says nothing to a user.
static std::string without_function(const std::string & line) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos || line.find(' ') < colon) {
        return line;
    }
    return line.substr(colon + 2);
}

void capture::add(const std::string & line) {
    const size_t limit = 600;
    if (text_.size() > limit) {
        return;
    }
    if (!text_.empty()) {
        text_ += "; ";
    }
    text_ += without_function(line);
}

std::string capture::text_or(const char * fallback) const { return text_.empty() ? fallback : text_; }

void start_log(qr_level min_level) {
    state().min_level.store(min_level);
    setenv("GGML_NO_BACKTRACE", "1", 0);
    llama_log_set(on_log, nullptr);
    ggml_set_abort_callback(on_abort);
    // llama-common has a logger of its own, with a thread and with the text of answers in it: off. Its errors reach
    // us as exceptions.
    common_log_set_verbosity_thold(-1);
}

}  // namespace qr
