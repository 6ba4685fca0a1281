// Chat templates and the reading of answers, both by llama-common.

#include "shim.h"

#include <cstdlib>
#include <cstring>

namespace qr {

namespace {

using json = common_json;

const size_t kept_parsers = 16;

char * copy_out(const std::string & s, size_t * len) {
    char * p = (char *) malloc(s.size() + 1);
    if (p == nullptr) {
        throw std::bad_alloc();
    }
    memcpy(p, s.data(), s.size());
    p[s.size()] = 0;
    *len        = s.size();
    return p;
}

struct bad_input : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::string trimmed(const std::string & s) {
    const size_t a = s.find_first_not_of(" \n\r\t");
    return a == std::string::npos ? "" : s.substr(a, s.find_last_not_of(" \n\r\t") - a + 1);
}

// llama-common wraps a template's error in several layers with excerpts of the source; the last "Error:" is the cause.
bool raised_by_template(const std::string & what, std::string & message) {
    const std::string raised = "Jinja Exception: ";
    const size_t at = what.rfind(raised);
    if (at != std::string::npos) {
        message = trimmed(what.substr(at + raised.size()));
        return true;
    }
    const std::string cause = "Error: ";
    const size_t err = what.rfind(cause);
    if (err != std::string::npos) {
        message = trimmed(what.substr(err + cause.size()));
        return true;
    }
    return false;
}

// Reasoning ends before the line break that precedes its closing tag. Cut from partial answers too, so that a stream
// never takes anything back.
std::string without_trailing_space(const std::string & s) {
    return s.substr(0, s.find_last_not_of(" \n\r\t") + 1);
}

// The template is parsed once; a failure is remembered and told to every caller.
const common_chat_templates * templates_of(qr_model * m) {
    if (!m->templates_tried) {
        m->templates_tried = true;
        try {
            m->templates = common_chat_templates_init(m->weights.get(), "");
        } catch (const std::exception & e) {
            m->template_error = e.what();
        }
    }
    if (m->templates == nullptr) {
        throw bad_input("the model's chat template can't be read: " + m->template_error);
    }
    return m->templates.get();
}

json parse_or(const char * text, size_t len, const char * what) {
    json j = json::parse_no_throw(std::string(text, len));
    if (j.is_discarded()) {
        throw bad_input(std::string(what) + " is not valid JSON");
    }
    return j;
}

void read_kwargs(const qr_chat_input & in, common_chat_templates_inputs & out) {
    if (in.kwargs == nullptr || in.kwargs_len == 0) {
        return;
    }
    const json j = parse_or(in.kwargs, in.kwargs_len, "chat_template_kwargs");
    if (!j.is_object()) {
        throw bad_input("chat_template_kwargs must be an object");
    }
    for (const auto & [key, val] : j.items()) {
        if (key == "enable_thinking" && val.is_boolean()) {
            out.enable_thinking = val.get<bool>();
        }
        out.chat_template_kwargs[key] = val.dump();
    }
}

common_chat_templates_inputs inputs_of(const qr_chat_input & in) {
    common_chat_templates_inputs out;
    const json messages = parse_or(in.messages, in.messages_len, "messages");
    try {
        out.messages = common_chat_msgs_parse_oaicompat(messages);
    } catch (const std::exception & e) {
        throw bad_input(e.what());
    }
    out.add_generation_prompt = in.add_generation_prompt != 0;
    out.enable_thinking       = in.enable_thinking != 0;
    out.reasoning_format      = COMMON_REASONING_FORMAT_AUTO;
    read_kwargs(in, out);
    return out;
}

std::string format_of(const common_chat_params & p) {
    json j = json::object();
    j["format"]            = (int) p.format;
    j["generation_prompt"] = p.generation_prompt;
    j["parser"]            = p.parser;
    j["preserved"]         = p.preserved_tokens; // not for the parser: what the answer must be able to hold
    return j.dump_safe();
}

std::shared_ptr<const common_chat_parser_params> parser_from(const std::string & format) {
    const json j = parse_or(format.data(), format.size(), "chat format");
    const int kind = j.at("format").get<int>();
    if (kind < 0 || kind >= COMMON_CHAT_FORMAT_COUNT) {
        throw bad_input("chat format of another version");
    }
    auto p = std::make_shared<common_chat_parser_params>();
    p->format            = (common_chat_format) kind;
    p->reasoning_format  = COMMON_REASONING_FORMAT_AUTO;
    p->generation_prompt = j.at("generation_prompt").get<std::string>();
    p->parse_tool_calls  = false;
    const std::string parser = j.at("parser").get<std::string>();
    if (!parser.empty()) {
        p->parser.load(parser);
    }
    return p;
}

// The parser of a format, from the few that are kept: a stream asks for the same one with every piece of text.
std::shared_ptr<const common_chat_parser_params> parser_of(qr_model * m, const std::string & format) {
    {
        const std::lock_guard<std::mutex> hold(m->chat_lock);
        for (const auto & kept : m->parsers) {
            if (kept.format == format) {
                return kept.params;
            }
        }
    }
    auto made = parser_from(format);
    const std::lock_guard<std::mutex> hold(m->chat_lock);
    if (m->parsers.size() >= kept_parsers) {
        m->parsers.erase(m->parsers.begin());
    }
    m->parsers.push_back({ format, made });
    return made;
}

// Whether anything but content can come out of the parser. Asked of the parser itself: a probe with the usual tags
// must come back whole.
bool splits(const common_chat_params & p, const std::string & format) {
    if (p.supports_thinking || !p.thinking_start_tag.empty()) {
        return true;
    }
    if (p.parser.empty()) {
        return false;
    }
    const std::string probe = " \nx <think>y</think> <|channel|>z [THINK]w[/THINK] \n";
    try {
        const common_chat_msg msg = common_chat_parse(probe, false, *parser_from(format));
        return msg.content != probe || !msg.reasoning_content.empty();
    } catch (const std::exception &) {
        return true;
    }
}

void fill(const common_chat_params & p, qr_chat_prompt & out) {
    const std::string format = format_of(p);
    json stops = json::array();
    for (const auto & s : p.additional_stops) {
        stops.push_back(s);
    }
    out.prompt = copy_out(p.prompt, &out.prompt_len);
    out.stops  = copy_out(stops.dump_safe(), &out.stops_len);
    out.format = copy_out(format, &out.format_len);
    out.splits = splits(p, format);
    // llama-common takes the BOS that a template writes itself off the prompt when the tokenizer adds one.
    out.add_special = 1;
}

}  // namespace

}  // namespace qr

int32_t qr_chat_apply(qr_model * m, const qr_chat_input * in, qr_chat_prompt * out, char * err, size_t err_len) {
    return qr::guarded(err, err_len, [&]() -> int32_t {
        *out = {};
        try {
            const common_chat_templates_inputs inputs = qr::inputs_of(*in);
            common_chat_params params;
            {
                // llama-common says nothing about rendering one template on two threads.
                const std::lock_guard<std::mutex> hold(m->chat_lock);
                params = common_chat_templates_apply(qr::templates_of(m), inputs);
            }
            qr::fill(params, *out);
            return QR_OK;
        } catch (const qr::bad_input & e) {
            qr::put_error(err, err_len, e.what());
            return QR_BAD_ARGUMENT;
        } catch (const std::exception & e) {
            qr_chat_prompt_free(out);
            std::string message;
            const bool raised = qr::raised_by_template(e.what(), message);
            qr::put_error(err, err_len, raised ? message : e.what());
            return raised ? QR_TEMPLATE : QR_FAILED;
        }
    });
}

void qr_chat_prompt_free(qr_chat_prompt * p) {
    free(p->prompt);
    free(p->stops);
    free(p->format);
    *p = {};
}

int32_t qr_chat_parse(qr_model * m, const char * format, size_t format_len, const char * text, size_t len, int32_t partial,
                      qr_chat_message * out, char * err, size_t err_len) {
    return qr::guarded(err, err_len, [&]() -> int32_t {
        *out = {};
        const auto parser = qr::parser_of(m, std::string(format, format_len));
        const common_chat_msg msg = common_chat_parse(std::string(text, len), partial != 0, *parser);
        try {
            out->content   = qr::copy_out(msg.content, &out->content_len);
            out->reasoning = qr::copy_out(qr::without_trailing_space(msg.reasoning_content), &out->reasoning_len);
        } catch (...) {
            qr_chat_message_free(out);
            throw;
        }
        return QR_OK;
    });
}

void qr_chat_message_free(qr_chat_message * p) {
    free(p->content);
    free(p->reasoning);
    *p = {};
}
