// The grammar that llama.cpp makes of a JSON Schema, and which texts its own engine admits by it.
//
// Reads cases, a JSON object a line, {"schema": ..., "texts": [TEXT, ...]}; answers each with a line: a list of true and
// false, or a text that says why the schema is refused.
#include "json-schema-to-grammar.h"
#include "llama-grammar.h"
#include "llama-impl.h"
#include "llama-vocab.h"
#include "src/unicode.h"

#include <nlohmann/json.hpp>

#include <iostream>

// What its files use of common.cpp, which needs all of llama.cpp.
std::string string_join(const std::vector<std::string> & values, const std::string & separator) {
    std::string joined;
    for (size_t at = 0; at < values.size(); at++) {
        joined += (at > 0 ? separator : "") + values[at];
    }
    return joined;
}

std::vector<std::string> string_split(const std::string & text, const std::string & delimiter) {
    std::vector<std::string> parts;
    size_t begin = 0;
    for (size_t end; (end = text.find(delimiter, begin)) != std::string::npos; begin = end + delimiter.size()) {
        parts.push_back(text.substr(begin, end - begin));
    }
    parts.push_back(text.substr(begin));
    return parts;
}

std::string string_repeat(const std::string & text, size_t times) {
    std::string repeated;
    for (; times > 0; times--) {
        repeated += text;
    }
    return repeated;
}

// What they use of the rest of llama.cpp, for grammars that name tokens and for errors of their own.
extern "C" void ggml_abort(const char * file, int line, const char *, ...) {
    std::cerr << file << ":" << line << std::endl;
    std::abort();
}

void llama_log_internal(ggml_log_level, const char *, ...) {}

int32_t llama_vocab::tokenize(const char *, int32_t, llama_token *, int32_t, bool, bool) const { return 0; }

static bool admits(const std::string & source, const std::string & text) {
    llama_grammar * grammar = llama_grammar_init_impl(nullptr, source.c_str(), "root", false, nullptr, 0, nullptr, 0);
    if (grammar == nullptr) {
        throw std::runtime_error("its grammar cannot be read");
    }
    auto & stacks = llama_grammar_get_stacks(grammar);
    for (const uint32_t letter : unicode_cpts_from_utf8(text)) {
        llama_grammar_accept(grammar, letter);
        if (stacks.empty()) {
            break;
        }
    }
    bool is_whole = false;
    for (const auto & stack : stacks) {
        is_whole = is_whole || stack.empty();
    }
    llama_grammar_free_impl(grammar);
    return is_whole;
}

int main() {
    for (std::string line; std::getline(std::cin, line);) {
        nlohmann::json said = nlohmann::json::array();
        try {
            const auto read = nlohmann::ordered_json::parse(line);
            const std::string grammar = json_schema_to_grammar(common_json::parse(read.at("schema").dump()));
            for (const auto & text : read.at("texts")) {
                said.push_back(admits(grammar, text.get<std::string>()));
            }
        } catch (const std::exception & error) {
            said = error.what();
        }
        std::cout << said.dump() << std::endl;
    }
}
