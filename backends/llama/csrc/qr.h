/*
 * The flat C interface between the Go package engine and llama.cpp.
 *
 * No C++ exception and no assertion that a caller could provoke crosses it: every function validates what llama.cpp
 * would only assert, and returns a code with a text instead. Functions that can fail take a buffer for that text
 * (always terminated; may be NULL). Sizes are bytes unless a comment says tokens.
 *
 * Threads: a qr_model may be used by any number of threads at once. A qr_context belongs to one thread at a time,
 * qr_interrupt excepted. A qr_pool runs one decode at a time; the others wait.
 * Lifetime: a context keeps the weights and the pool it uses alive, so handles may be freed in any order.
 */
#ifndef QR_H
#define QR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QR_API __attribute__((visibility("default")))

/* Raised with every change of this file; qr_abi() tells what the library was built with. */
#define QR_ABI 2

enum qr_code {
    QR_OK           = 0,
    QR_NO_CELLS     = 1,  /* decode: no free KV cells, nothing changed */
    QR_INTERRUPTED  = 2,  /* decode: qr_interrupt, part of the batch may have been decoded */
    QR_CONTEXT_FULL = 3,  /* decode: a position at or past the context's size, nothing changed */
    QR_BAD_BATCH    = -1, /* decode: refused, nothing changed */
    QR_COMPUTE      = -2, /* decode: llama.cpp failed, part of the batch may have been decoded */
    QR_BAD_ARGUMENT = -3,
    QR_FAILED       = -4,
    QR_TEMPLATE     = -5, /* the chat template raised an error of its own: the text is the template's */
    QR_STALE        = -6, /* decode: the sequence was left undefined by an earlier interrupted or failed decode */
};

enum qr_level { QR_DEBUG = 0, QR_INFO = 1, QR_WARN = 2, QR_ERROR = 3, QR_SILENT = 4 };

enum qr_memory { QR_ATTENTION = 0, QR_SLIDING_WINDOW = 1, QR_HYBRID = 2, QR_RECURRENT = 3 };

typedef struct qr_model   qr_model;
typedef struct qr_context qr_context;
typedef struct qr_pool    qr_pool;

/* ---- library ---- */

QR_API int32_t qr_abi(void);
/* Sets up logging and backends, and compares the library with what it was compiled against. Once per process. */
QR_API int32_t qr_init(int32_t min_level, char * err, size_t err_len);
QR_API const char * qr_version(void);
QR_API const char * qr_system_info(void);

/* ---- model ---- */

struct qr_model_config {
    const char * path;
    int32_t gpu_layers;    /* negative = all */
    int32_t mmap;
    int32_t check_tensors;
};

struct qr_model_info {
    char     description[128];
    char     architecture[64];
    int32_t  memory;       /* enum qr_memory */
    int32_t  window;       /* tokens, 0 = none */
    int32_t  vocabulary;   /* tokens */
    int32_t  context;      /* tokens the model was trained on */
    uint64_t bytes;
    uint64_t parameters;
    int32_t  has_tokenizer;
    int32_t  has_template;
    int32_t  gpu;          /* layers can be offloaded by this build on this machine */
    int32_t  add_bos;
    int32_t  bos;          /* -1 = none */
};

QR_API int32_t qr_model_load(const struct qr_model_config * cfg, qr_model ** out, char * err, size_t err_len);
QR_API void    qr_model_free(qr_model * m);
QR_API void    qr_model_describe(const qr_model * m, struct qr_model_info * out);

/* Writes up to cap tokens and their number to *n; when *n > cap nothing was written and the call is to be repeated. */
QR_API int32_t qr_tokenize(const qr_model * m, const char * text, size_t len, int32_t add_special, int32_t parse_special,
                           int32_t * out, size_t cap, size_t * n, char * err, size_t err_len);

#define QR_TOKEN_HIDDEN  1 /* not part of the text as shown */
#define QR_TOKEN_CONTROL 2
#define QR_TOKEN_EOG     4

/* All pieces, control tokens too, one behind the other; ends[i] is where piece i ends. *len is the total; when it is
 * over cap nothing was written. ends and flags hold one entry per token. */
QR_API int32_t qr_vocab(const qr_model * m, char * text, size_t cap, uint32_t * ends, uint8_t * flags, size_t * len,
                        char * err, size_t err_len);

/* ---- chat ---- */

struct qr_chat_input {
    const char * messages; /* JSON array in OpenAI's form */
    size_t       messages_len;
    const char * kwargs;   /* JSON object for the template, or NULL */
    size_t       kwargs_len;
    int32_t      enable_thinking;
    int32_t      add_generation_prompt;
};

/* Texts are owned by the library until qr_chat_prompt_free. */
struct qr_chat_prompt {
    char *  prompt;
    size_t  prompt_len;
    char *  stops;         /* JSON array of strings */
    size_t  stops_len;
    char *  format;        /* what qr_chat_parse needs */
    size_t  format_len;
    int32_t splits;        /* 0: the text is the content, no parse is needed */
    int32_t add_special;   /* tokenise the prompt with add_special */
};

struct qr_chat_message {
    char * content;
    size_t content_len;
    char * reasoning;
    size_t reasoning_len;
};

QR_API int32_t qr_chat_apply(qr_model * m, const struct qr_chat_input * in, struct qr_chat_prompt * out, char * err, size_t err_len);
QR_API void    qr_chat_prompt_free(struct qr_chat_prompt * p);
QR_API int32_t qr_chat_parse(qr_model * m, const char * format, size_t format_len, const char * text, size_t len, int32_t partial,
                             struct qr_chat_message * out, char * err, size_t err_len);
QR_API void    qr_chat_message_free(struct qr_chat_message * p);

/* ---- threads and contexts ---- */

/* poll: 0 blocks at once, 100 spins longest. */
QR_API int32_t qr_pool_new(int32_t threads, int32_t poll, qr_pool ** out, char * err, size_t err_len);
QR_API void    qr_pool_free(qr_pool * p);

struct qr_context_config {
    int32_t context;       /* tokens */
    int32_t batch;         /* tokens in one decode */
    int32_t ubatch;        /* tokens in one graph */
    int32_t sequences;
    int32_t outputs;       /* rows of logits in one decode */
    int32_t threads;
    int32_t flash_attention;
    int32_t kv_f32;        /* else f16 */
    int32_t unified;
    int32_t swa_full;
};

struct qr_context_info {
    int32_t context;       /* tokens one sequence can hold */
    int32_t batch;
    int32_t ubatch;
    int32_t sequences;
    int32_t outputs;
    int32_t memory;
    int32_t vocabulary;
};

/* The context's batch, in C memory: entry i of each array is token i. rows[i] points at the logits of entry i of the
 * last decode, or is NULL. All arrays hold capacity entries. */
struct qr_batch {
    int32_t   capacity;
    int32_t * token;
    int32_t * pos;
    int32_t * seq;
    int8_t *  output;
    float **  rows;
};

QR_API int32_t qr_context_new(qr_model * m, const struct qr_context_config * cfg, qr_pool * pool, qr_context ** out, char * err, size_t err_len);
QR_API void    qr_context_free(qr_context * c);
QR_API void    qr_context_describe(const qr_context * c, struct qr_context_info * out);
QR_API void    qr_context_batch(qr_context * c, struct qr_batch * out);

/* How many threads the next decodes use, cut to what the context was made with. Without flash attention rows don't depend on it. */
QR_API void qr_set_threads(qr_context * c, int32_t n);

/* Decodes the first n entries of the context's batch. The text of a failure is qr_context_error's. */
QR_API int32_t qr_decode(qr_context * c, int32_t n);
QR_API const char * qr_context_error(const qr_context * c);

/* Ranges are [p0, p1); negative = open. */
QR_API int32_t qr_seq_copy(qr_context * c, int32_t src, int32_t dst, int32_t p0, int32_t p1);
/* 1 = removed, 0 = this memory can't remove that range and go on: nothing changed. Negative codes are errors. */
QR_API int32_t qr_seq_remove(qr_context * c, int32_t seq, int32_t p0, int32_t p1);
/* -1 for an empty sequence and for an id that does not exist. */
QR_API int32_t qr_seq_pos_min(qr_context * c, int32_t seq);
QR_API int32_t qr_seq_pos_max(qr_context * c, int32_t seq);
QR_API int32_t qr_clear(qr_context * c);
QR_API size_t  qr_state_size(qr_context * c, int32_t seq);

/* From any thread: on != 0 makes the running decode and later ones end with QR_INTERRUPTED until on == 0. */
QR_API void    qr_interrupt(qr_context * c, int32_t on);

#ifdef __cplusplus
}
#endif

#endif
