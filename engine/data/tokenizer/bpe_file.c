/* bpe_file.c - reads and writes bitrain's tokenizer files. Each is one JSON object:
 *
 *   format         "bitrain-tokenizer"
 *   version        the lowest of 1 to 4 that has all keys and forms in use
 *   kind           "bpe" (or "bytes", with nothing else); version 4: "unigram"
 *   pattern        "gpt2", "llama3", "qwen2" or "rules": how text is cut into words (pretok.c)
 *   rules          version 2: with the pattern "rules", its regular expressions, one per line (pretok.h)
 *   normalizer     "none" or "nfc"
 *   ignore_merges  true: a word that equals a token becomes this token without merging
 *   eot            id of the end-of-text token, -1: none
 *   chat_template  Jinja text; optional
 *   hash           16 hex digits, the hash of everything that determines the ids of a text; another hash, or none,
 *                  is refused
 *   tokens         by id: a string in GPT-2's printable byte alphabet, {"special": "<|endoftext|>"}, or null
 *                  for a hole.
 *                  Version 2 also has {"added": "<think>"}, and flags beside either that are true: "lstrip", "rstrip",
 *                  "single_word", "normalized" (added.h), "merges" (the bytes are an ordinary token, too)
 *                  Version 3 also has {"byte": 10}
 *   spaces         version 3: {"how": "prepend", "split": false, "strip": true} (marked_spaces.h)
 *   scores         version 4: scores of the first tokens, by id
 *   unknown        version 4: id of the token that replaces characters without a token
 *   byte_fallback  version 4: true: such characters become byte tokens instead
 *   prefix, suffix version 2: ids around a whole text
 *   roles          version 2, of either kind: {"bos": id or -1, "pad": id or -1, "ends": [id, ...]}
 *   files          version 2: {"tokenizer.json": text, ...}, the original files of an imported tokenizer (packed.h)
 *   merges         [[left id, right id], ...] by rank; the joined bytes are a token
 *
 * Refused: nesting deeper than 64, invalid UTF-8, duplicate or unknown keys, duplicate
 *          tokens, merges outside the vocabulary, more than 2^20 tokens, a byte without a token, rules with syntax that
 *          word_rules.c does not list. */
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/io/json.h"
#include "engine/data/io/utf8.h"
#include "engine/data/tokenizer/tokenizer_impl.h"

/* GPT-2's byte alphabet: printable Latin-1 characters represent themselves; U+0100 and the following characters
 * represent the other 68 bytes (0x00-0x20, 0x7F-0xA0, 0xAD) in order. */
static bool represents_itself_in_alphabet(unsigned c) {
    return (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

static uint32_t byte_to_char(unsigned char byte) {
    if (represents_itself_in_alphabet(byte)) return byte;
    return byte <= 0x20 ? 0x100u + byte : byte <= 0xA0 ? 0x121u + byte - 0x7Fu : 0x143u;
}

static int char_to_byte(uint32_t c) {
    if (c < 0x100) return represents_itself_in_alphabet(c) ? (int)c : -1;
    if (c <= 0x120) return (int)c - 0x100;
    if (c <= 0x142) return (int)c - 0x121 + 0x7F;
    return c == 0x143 ? 0xAD : -1;
}

bool bt_alphabet_decode(const char *s, size_t n, bt_text *out) {
    for (size_t i = 0; i < n;) {
        size_t k = bt_utf8_char(s + i, n - i);
        int byte = k ? char_to_byte(bt_utf8_decode(s + i, k)) : -1;
        if (byte < 0) return false;
        bt_text_putn(out, &(char){(char)byte}, 1);
        i += k;
    }
    return true;
}

void bt_alphabet_encode(const char *bytes, size_t n, bt_text *out) {
    for (size_t i = 0; i < n; i++) {
        char c[4];
        bt_text_putn(out, c, bt_utf8_encode(c, byte_to_char((unsigned char)bytes[i])));
    }
}

static const struct { /* the flags of an added token and their keys */
    const char *key;
    size_t at;
} added_flags[] = {{"lstrip", offsetof(bt_added, lstrip)},
                   {"rstrip", offsetof(bt_added, rstrip)},
                   {"single_word", offsetof(bt_added, single_word)},
                   {"normalized", offsetof(bt_added, normalized)}};
enum { N_FLAGS = sizeof added_flags / sizeof *added_flags };

static bool *added_flag(bt_added *a, size_t i) { return (bool *)((char *)a + added_flags[i].at); }

static bool needs_version_2(const bt_tokenizer *t, const bt_added *a) {
    return t->special[a->id] != BT_TOKEN_SPECIAL || a->lstrip || a->rstrip || a->single_word ||
           a->normalized;
}

static int lowest_file_version(const bt_tokenizer *t) {
    if (t->scores) return 4;
    if (bt_tokenizer_marks(t)) return 3;
    if (t->n_prefix || t->n_suffix || t->roles.known || t->rules) return 2;
    for (size_t i = 0; i < BT_KEPT_FILES; i++)
        if (t->kept[i]) return 2;
    for (size_t i = 0; i < t->n_added; i++)
        if (needs_version_2(t, &t->added[i])) return 2;
    return 1;
}

static void put_added(bt_json *j, const bt_tokenizer *t, bt_added a, const char *text) {
    bt_json_object(j, NULL);
    bt_json_str(j, a.special ? "special" : "added", text);
    for (size_t i = 0; i < N_FLAGS; i++)
        if (*added_flag(&a, i)) bt_json_bool(j, added_flags[i].key, true);
    if (t->special[a.id] == BT_TOKEN_PLAIN) bt_json_bool(j, "merges", true);
    bt_json_end(j, '}');
}

static void put_id_list(bt_json *j, const char *key, const int32_t *ids, size_t n) {
    bt_json_array(j, key);
    for (size_t i = 0; i < n; i++) bt_json_int(j, NULL, ids[i]);
    bt_json_end(j, ']');
}

static void put_token_roles(bt_json *j, const bt_token_roles *r) {
    if (!r->known) return;
    bt_json_object(j, "roles");
    bt_json_int(j, "bos", r->bos);
    bt_json_int(j, "pad", r->pad);
    put_id_list(j, "ends", r->ends, r->n_ends);
    bt_json_end(j, '}');
}

static void put_token_list(bt_json *j, const bt_tokenizer *t) {
    bt_text word = {0};
    size_t next = 0; /* index of the next token in t->added */
    bt_json_array(j, "tokens");
    for (int32_t id = 0; id < t->V; id++) {
        size_t n;
        const char *bytes = bt_tokenizer_raw(t, id, &n);
        bt_text_clear(&word);
        bt_text_put(j->out, id % 16 == 0 ? "\n" : "");
        if (t->special[id] == BT_TOKEN_HOLE) {
            bt_json_null(j, NULL);
        } else if (t->special[id] == BT_TOKEN_BYTE) {
            bt_json_object(j, NULL);
            bt_json_int(j, "byte", bt_marked_byte(bytes, n));
            bt_json_end(j, '}');
        } else if (next < t->n_added && t->added[next].id == id) {
            bt_text_putn(&word, bytes, n);
            put_added(j, t, t->added[next++], bt_text_str(&word));
        } else {
            bt_alphabet_encode(bytes, n, &word);
            bt_json_str(j, NULL, bt_text_str(&word));
        }
    }
    bt_json_end(j, ']');
    j->out->failed |= word.failed;
    bt_text_release(&word);
}

static void put_unigram(bt_json *j, const bt_tokenizer *t) {
    bt_json_int(j, "unknown", t->unknown);
    bt_json_bool(j, "byte_fallback", t->byte_fallback);
    bt_json_array(j, "scores");
    for (size_t i = 0; i < t->n_scores; i++) {
        bt_text_put(j->out, i % 16 == 0 ? "\n" : "");
        bt_json_num(j, NULL, t->scores[i]);
    }
    bt_json_end(j, ']');
}

static void put_files(bt_json *j, const bt_tokenizer *t) {
    bool any = false;
    for (size_t i = 0; i < BT_KEPT_FILES; i++) {
        if (!t->kept[i]) continue;
        if (!any) bt_json_object(j, "files");
        any = true;
        bt_json_str(j, bt_kept_file_name(i), t->kept[i]);
    }
    if (any) bt_json_end(j, '}');
}

void bt_tokenizer_save(const bt_tokenizer *t, bt_text *out) {
    bt_json j;
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)t->hash);
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "format", "bitrain-tokenizer");
    bt_json_int(&j, "version", lowest_file_version(t));
    bt_json_str(&j, "kind", t->is_bytes ? "bytes" : t->scores ? "unigram" : "bpe");
    put_token_roles(&j, &t->roles);
    if (!t->is_bytes) {
        bt_json_str(&j, "pattern", bt_pattern_name(t->pattern));
        if (t->rules) bt_json_str(&j, "rules", t->rules);
        bt_json_str(&j, "normalizer", t->nfc ? "nfc" : "none");
        bt_json_bool(&j, "ignore_merges", t->ignore_merges);
        if (bt_tokenizer_marks(t)) {
            bt_json_object(&j, "spaces");
            bt_json_str(&j, "how", bt_spaces_name(t->marked.how));
            bt_json_bool(&j, "split", t->marked.split);
            bt_json_bool(&j, "strip", t->marked.strip);
            bt_json_end(&j, '}');
        }
        bt_json_int(&j, "eot", t->eot);
        if (t->n_prefix) put_id_list(&j, "prefix", t->prefix, t->n_prefix);
        if (t->n_suffix) put_id_list(&j, "suffix", t->suffix, t->n_suffix);
        if (t->chat_template) bt_json_str(&j, "chat_template", t->chat_template);
        put_files(&j, t);
        bt_json_str(&j, "hash", hash);
        put_token_list(&j, t);
        if (t->scores) put_unigram(&j, t);
        bt_json_array(&j, "merges");
        for (size_t i = 0; i < t->n_merges; i++) {
            char pair[32];
            snprintf(pair, sizeof pair, "[%d,%d]", t->merges[i].left, t->merges[i].right);
            if (i % 16 == 0) bt_text_put(out, "\n");
            bt_json_raw(&j, NULL, pair);
        }
        bt_json_end(&j, ']');
    }
    bt_json_end(&j, '}');
    bt_text_put(out, "\n");
}

static const char *const keys[] = {"format",     "version",       "kind",          "pattern",
                                   "normalizer", "ignore_merges", "eot",           "hash",
                                   "tokens",     "merges",        "chat_template", "prefix",
                                   "suffix",     "roles",         "files",         "rules",
                                   "spaces",     "scores",        "unknown",       "byte_fallback"};

static bt_code check_tokenizer_keys(json_t *o, bt_err *err) {
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value) {
        bool ok = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) ok |= strcmp(key, keys[i]) == 0;
        if (!ok) return bt_fail(err, BT_FORMAT, "the key '%.60s' is unknown in this format", key);
    }
    return BT_OK;
}

/* Reads at most `most` token ids. The caller checks them against the vocabulary after reading the whole file. */
static bt_code read_ids(json_t *o, const char *key, int32_t *ids, size_t most, size_t *n,
                        bt_err *err) {
    json_t *list = json_object_get(o, key), *v;
    size_t i;
    *n = 0;
    if (!list) return BT_OK;
    if (!json_is_array(list) || json_array_size(list) > most)
        return bt_fail(err, BT_FORMAT, "'%s' is not a list of at most %zu token ids", key, most);
    json_array_foreach(list, i, v) {
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= BT_MAX_VOCAB)
            return bt_fail(err, BT_FORMAT, "'%s' contains a value that is not a token id", key);
        ids[(*n)++] = (int32_t)json_integer_value(v);
    }
    return BT_OK;
}

static bt_code read_token_roles(json_t *o, bt_tokenizer *t, bt_err *err) {
    json_t *v = json_object_get(o, "roles"), *bos = json_object_get(v, "bos"),
           *pad = json_object_get(v, "pad");
    bt_token_roles r = {.known = true};
    if (!v) return BT_OK;
    if (json_object_size(v) != 3 || !json_is_integer(bos) || !json_is_integer(pad) ||
        json_integer_value(bos) < -1 || json_integer_value(bos) >= BT_MAX_VOCAB ||
        json_integer_value(pad) < -1 || json_integer_value(pad) >= BT_MAX_VOCAB ||
        !json_object_get(v, "ends"))
        return bt_fail(err, BT_FORMAT, "'roles' lacks bos, pad or ends");
    r.bos = (int32_t)json_integer_value(bos);
    r.pad = (int32_t)json_integer_value(pad);
    BT_TRY(read_ids(v, "ends", r.ends, BT_ENDS_MAX, &r.n_ends, err));
    const int32_t eot = t->eot; /* reading the file has already set it */
    const size_t left_out = bt_tokenizer_set_roles(t, &r);
    t->eot = eot;
    return left_out ? bt_fail(err, BT_FORMAT, "'roles' names tokens outside the vocabulary")
                    : BT_OK;
}

static bt_code read_source_files(json_t *o, bt_tokenizer *t, bt_err *err) {
    json_t *files = json_object_get(o, "files"), *v;
    const char *name;
    if (files && !json_is_object(files))
        return bt_fail(err, BT_FORMAT, "'files' is not a JSON object");
    json_object_foreach(files, name, v) {
        if (!json_is_string(v))
            return bt_fail(err, BT_FORMAT, "the stored file '%.60s' is not a string", name);
        BT_TRY(bt_kept_file_set(t, name, json_string_value(v), err));
    }
    return BT_OK;
}

static bt_code read_spaces(json_t *o, bt_marked *m, bt_err *err) {
    json_t *split = json_object_get(o, "split"), *strip = json_object_get(o, "strip");
    const char *how = json_string_value(json_object_get(o, "how"));
    if (!o) return BT_OK;
    *m = (bt_marked){.split = json_is_true(split), .strip = json_is_true(strip)};
    for (m->how = BT_SPACES_REPLACE; how && m->how < BT_SPACES_COUNT; m->how++)
        if (strcmp(how, bt_spaces_name(m->how)) == 0) break;
    if (how && m->how < BT_SPACES_COUNT && json_is_boolean(split) && json_is_boolean(strip) &&
        json_object_size(o) == 3)
        return BT_OK;
    m->how = BT_SPACES_PLAIN;
    return bt_fail(
        err, BT_FORMAT,
        "'spaces' lacks how, split or strip, or has other values than the format allows");
}

static bt_code read_rules(json_t *o, bt_tokenizer *t, bt_err *err) {
    const char *pattern, *normalizer;
    json_t *ignore = json_object_get(o, "ignore_merges"), *eot = json_object_get(o, "eot");
    BT_TRY(read_spaces(json_object_get(o, "spaces"), &t->marked, err));
    BT_TRY(bt_json_text_of(o, "pattern", &pattern, err));
    BT_TRY(bt_json_text_of(o, "normalizer", &normalizer, err));
    int p = 0;
    json_t *rules = json_object_get(o, "rules");
    while (p <= BT_PATTERN_RULES && strcmp(bt_pattern_name((bt_pattern)p), pattern) != 0) p++;
    if (p > BT_PATTERN_RULES)
        return bt_fail(err, BT_FORMAT,
                       "the pattern '%.60s' is unknown (known: gpt2, llama3, qwen2, rules)",
                       pattern);
    if ((p == BT_PATTERN_RULES) != json_is_string(rules))
        return bt_fail(
            err, BT_FORMAT,
            "the pattern 'rules' needs the key 'rules', and no other pattern may have it");
    if (rules) BT_TRY(bt_tokenizer_set_rules(t, json_string_value(rules), err));
    if (strcmp(normalizer, "none") != 0 && strcmp(normalizer, "nfc") != 0)
        return bt_fail(err, BT_FORMAT, "the normalizer '%.60s' is unknown (known: none, nfc)",
                       normalizer);
    if (!json_is_boolean(ignore))
        return bt_fail(err, BT_FORMAT, "'ignore_merges' is not true or false");
    if (!json_is_integer(eot) || json_integer_value(eot) < -1 ||
        json_integer_value(eot) >= BT_MAX_VOCAB)
        return bt_fail(err, BT_FORMAT, "'eot' is not a token id");
    json_t *chat = json_object_get(o, "chat_template");
    if (chat && !json_is_string(chat))
        return bt_fail(err, BT_FORMAT, "'chat_template' is not a string");
    BT_TRY(bt_tokenizer_set_chat_template(t, json_string_value(chat), err));
    BT_TRY(read_ids(o, "prefix", t->prefix, BT_AFFIX_MAX, &t->n_prefix, err));
    BT_TRY(read_ids(o, "suffix", t->suffix, BT_AFFIX_MAX, &t->n_suffix, err));
    if (!rules) t->pattern = (bt_pattern)p;
    t->nfc = normalizer[1] == 'f';
    t->ignore_merges = json_is_true(ignore);
    t->eot = (int32_t)json_integer_value(eot);
    return BT_OK;
}

static bt_code read_added(json_t *v, bt_tokenizer_draft *d, bt_err *err) {
    json_t *special = json_object_get(v, "special"), *text = special, *flag;
    bt_added a = {.special = special != NULL};
    size_t known = 1;
    if (!text) text = json_object_get(v, "added");
    for (size_t i = 0; i < N_FLAGS; i++) {
        flag = json_object_get(v, added_flags[i].key);
        *added_flag(&a, i) = json_is_true(flag);
        known += json_is_true(flag);
    }
    flag = json_object_get(v, "merges");
    known += json_is_true(flag);
    if (!json_is_string(text) || !json_string_length(text) || json_object_size(v) != known)
        return bt_fail(err, BT_FORMAT, "token %d is not a valid added token of this format",
                       d->t->V);
    BT_TRY(bt_draft_token(d, json_string_value(text), json_string_length(text),
                          json_is_true(flag) ? BT_TOKEN_PLAIN
                          : a.special        ? BT_TOKEN_SPECIAL
                                             : BT_TOKEN_ADDED,
                          err));
    return bt_draft_name(d, &a, err);
}

static bt_code read_byte_token(json_t *v, bt_tokenizer_draft *d, bt_err *err) {
    const json_int_t byte = json_integer_value(v);
    char text[8];
    if (!json_is_integer(v) || byte < 0 || byte > 255)
        return bt_fail(err, BT_FORMAT, "token %d is not a valid byte token", d->t->V);
    (void)snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
    return bt_draft_token(d, text, 6, BT_TOKEN_BYTE, err);
}

static bt_code read_token(json_t *v, bt_tokenizer_draft *d, bt_text *word, bt_err *err) {
    if (json_object_size(v) == 1 && json_object_get(v, "byte") && bt_tokenizer_marks(d->t))
        return read_byte_token(json_object_get(v, "byte"), d, err);
    if (json_is_null(v)) return bt_draft_token(d, "", 0, BT_TOKEN_HOLE, err);
    if (json_is_object(v)) return read_added(v, d, err);
    if (!json_is_string(v))
        return bt_fail(err, BT_FORMAT, "token %d is neither a string, an added token, nor null",
                       d->t->V);
    bt_text_clear(word);
    if (!bt_alphabet_decode(json_string_value(v), json_string_length(v), word))
        return bt_fail(err, BT_FORMAT, "token %d contains a character outside the byte alphabet",
                       d->t->V);
    if (word->failed) return bt_fail(err, BT_NOMEM, "cannot allocate memory for token %d", d->t->V);
    return bt_draft_token(d, bt_text_str(word), word->len, BT_TOKEN_PLAIN, err);
}

static bt_code read_scores(json_t *o, bt_tokenizer *t, bt_err *err) {
    json_t *scores = json_object_get(o, "scores"), *unknown = json_object_get(o, "unknown"),
           *fallback = json_object_get(o, "byte_fallback"), *v;
    const size_t n = json_array_size(scores);
    size_t i;
    if (!n || n > BT_MAX_VOCAB || !json_is_integer(unknown) || json_integer_value(unknown) < 0 ||
        json_integer_value(unknown) >= BT_MAX_VOCAB || !json_is_boolean(fallback))
        return bt_fail(err, BT_FORMAT, "it lacks scores, unknown or byte_fallback");
    t->scores = calloc(n, sizeof *t->scores);
    if (!t->scores) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu scores", n);
    json_array_foreach(scores, i, v) {
        if (!json_is_number(v)) return bt_fail(err, BT_FORMAT, "score %zu is not a number", i);
        t->scores[i] = json_number_value(v);
    }
    t->n_scores = n;
    t->unknown = (int32_t)json_integer_value(unknown);
    t->byte_fallback = json_is_true(fallback);
    return BT_OK;
}

static bt_code read_lists(json_t *o, bt_tokenizer_draft *d, bt_text *word, bt_err *err) {
    json_t *tokens = json_object_get(o, "tokens"), *merges = json_object_get(o, "merges"), *v;
    size_t i;
    if (!json_is_array(tokens) || !json_is_array(merges))
        return bt_fail(err, BT_FORMAT, "the lists 'tokens' and 'merges' are missing");
    json_array_foreach(tokens, i, v) BT_TRY(read_token(v, d, word, err));
    json_array_foreach(merges, i, v) {
        json_t *l = json_array_get(v, 0), *r = json_array_get(v, 1);
        if (json_array_size(v) != 2 || !json_is_integer(l) || !json_is_integer(r))
            return bt_fail(err, BT_FORMAT, "merge %zu is not a pair of token ids", i);
        json_int_t a = json_integer_value(l), b = json_integer_value(r);
        if (a < 0 || a >= d->t->V || b < 0 || b >= d->t->V)
            return bt_fail(err, BT_FORMAT,
                           "merge %zu of %lld and %lld is outside the vocabulary of %d tokens", i,
                           (long long)a, (long long)b, d->t->V);
        BT_TRY(bt_draft_merge(d, (int32_t)a, (int32_t)b, err));
    }
    return BT_OK;
}

static bt_code read_bpe(bt_tokenizer **out, json_t *o, bool unigram, bt_err *err) {
    bt_tokenizer_draft d;
    bt_text word = {0};
    const char *hash;
    char found[20];
    BT_TRY(bt_json_text_of(o, "hash", &hash, err));
    BT_TRY(bt_draft_begin(&d, err));
    bt_code code = read_rules(o, d.t, err);
    if (code == BT_OK && unigram) code = read_scores(o, d.t, err);
    if (code == BT_OK) code = read_lists(o, &d, &word, err);
    bt_text_release(&word);
    if (code != BT_OK) {
        bt_draft_release(&d);
        return code;
    }
    BT_TRY(bt_draft_seal(&d, out, err));
    snprintf(found, sizeof found, "%016llx", (unsigned long long)(*out)->hash);
    if (strcmp(found, hash) == 0) {
        BT_TRY(read_token_roles(o, *out, err));
        return read_source_files(o, *out, err);
    }
    return bt_fail(
        err, BT_FORMAT,
        "its hash is %.20s, but its content has the hash %s: it is damaged or was edited", hash,
        found);
}

static bt_code read_tokenizer_object(bt_tokenizer **out, json_t *o, bt_err *err) {
    const char *format = json_string_value(json_object_get(o, "format")), *kind;
    if (!format || strcmp(format, "bitrain-tokenizer") != 0) {
        if (json_object_get(o, "model"))
            return bt_fail(
                err, BT_FORMAT,
                "it looks like Hugging Face's tokenizer.json: use 'bitrain tokenizer import'");
        return bt_fail(err, BT_FORMAT, "it is neither a bitrain tokenizer nor a tokenizer.json");
    }
    json_t *version = json_object_get(o, "version");
    if (!json_is_integer(version) || json_integer_value(version) < 1 ||
        json_integer_value(version) > 4)
        return bt_fail(err, BT_FORMAT, "its format version is not 1, 2, 3 or 4");
    BT_TRY(check_tokenizer_keys(o, err));
    BT_TRY(bt_json_text_of(o, "kind", &kind, err));
    if (strcmp(kind, "bytes") == 0 && json_object_size(o) == 3u + !!json_object_get(o, "roles")) {
        BT_TRY(bt_tokenizer_make_bytes(out, err));
        return read_token_roles(o, *out, err);
    }
    const bool unigram = strcmp(kind, "unigram") == 0;
    if (unigram != (json_object_get(o, "scores") != NULL))
        return bt_fail(err, BT_FORMAT,
                       "the kind 'unigram' needs the key 'scores', and no other kind may have it");
    if (unigram || strcmp(kind, "bpe") == 0) return read_bpe(out, o, unigram, err);
    return bt_fail(err, BT_FORMAT,
                   "the kind '%.60s' of tokenizer is unknown (known: bpe, unigram, bytes)", kind);
}

bt_code bt_tokenizer_parse_own(bt_tokenizer **out, const char *json, size_t n, const char *name,
                               bt_err *err) {
    json_t *o;
    bt_err why = BT_ERR_INIT;
    *out = NULL;
    bt_code code = bt_json_parse(&o, json, n, &why);
    if (code == BT_OK) code = read_tokenizer_object(out, o, &why);
    json_decref(o);
    if (code == BT_OK) return BT_OK;
    bt_tokenizer_free(*out);
    *out = NULL;
    return bt_fail(err, code, "tokenizer '%s' cannot be used: %s", name, why.msg);
}
