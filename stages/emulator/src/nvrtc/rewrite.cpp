// Rewrites the few parts of CUDA C++ that macros cannot express.
#include "rewrite.h"
#include <cctype>
#include <cstring>
#include <vector>

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static size_t skip_space(const std::string &text, size_t at) {
    // Line markers of the preprocessor may stand between any two words.
    for (;;) {
        while (at < text.size() && isspace((unsigned char)text[at])) at++;
        if (at >= text.size() || text[at] != '#') return at;
        at = text.find('\n', at);
    }
}

// The next place of `word`, as a whole word, from `at` on; or npos.
static size_t find_word(const std::string &text, const std::string &word, size_t at) {
    for (; (at = text.find(word, at)) != std::string::npos; at++)
        if ((at == 0 || !is_word(text[at - 1])) && !is_word(text[at + word.size()])) return at;
    return at;
}

static size_t end_of_parentheses(const std::string &text, size_t open) {
    int depth = 0;
    for (size_t at = open; at < text.size(); at++) {
        depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
        if (depth == 0) return at + 1;
    }
    return text.size();
}

struct Kernel {
    std::string name, most_threads;
};

// Removes `__launch_bounds__(most[, least blocks])` between `from` and `to`, and returns `most`.
static std::string take_bounds(std::string &text, size_t from, size_t to) {
    size_t at = find_word(text, "__launch_bounds__", from);
    if (at >= to) return "1024";
    size_t open = text.find('(', at), end = end_of_parentheses(text, open);
    size_t comma = open;
    for (int depth = 0; comma < end - 1; comma++) {
        depth += text[comma] == '(' ? 1 : text[comma] == ')' ? -1 : 0;
        if (depth == 1 && text[comma] == ',') break;
    }
    std::string most = text.substr(open + 1, comma - open - 1);
    text.replace(at, end - at, std::string(end - at, ' '));
    return most;
}

// Kernels are `extern "C" __global__ [__launch_bounds__(..)] void [__launch_bounds__(..)] NAME(`.
static std::vector<Kernel> take_kernels(std::string &text) {
    std::vector<Kernel> kernels;
    const std::string word = "__global__";
    for (size_t at = 0; (at = find_word(text, word, at)) != std::string::npos; at += word.size()) {
        size_t body = text.find_first_of("{;", at);
        std::string most = take_bounds(text, at, body);
        size_t name = skip_space(text, find_word(text, "void", at) + 4), end = name;
        while (end < text.size() && is_word(text[end])) end++;
        if (body != std::string::npos && text[body] == '{')
            kernels.push_back({text.substr(name, end - name), most});
    }
    return kernels;
}

// `extern __shared__ TYPE NAME[];` becomes a pointer to the memory of the launch.
static void name_dynamic_shared(std::string &text) {
    for (size_t at = 0; (at = find_word(text, "extern", at)) != std::string::npos; at++) {
        size_t shared = skip_space(text, at + 6);
        if (text.compare(shared, 10, "__shared__") != 0) continue;
        size_t semicolon = text.find(';', at), bracket = text.rfind('[', semicolon), name = bracket;
        while (!is_word(text[name - 1])) name--;
        size_t name_end = name;
        while (is_word(text[name - 1])) name--;
        std::string type = text.substr(shared + 10, name - shared - 10);
        // Alignment means nothing for a pointer. The memory is aligned to 1024 bytes.
        for (const char *align : {"__align__", "alignas"}) {
            size_t place = find_word(type, align, 0);
            if (place == std::string::npos) continue;
            type.erase(place, end_of_parentheses(type, type.find('(', place)) - place);
        }
        std::string pointer = "static " + type + "*const " + text.substr(name, name_end - name) + " = (" +
            type + "*)pw_dynamic_shared";
        text.replace(at, semicolon - at, pointer);
    }
}

// After `__shared__ TYPE NAME[..], NAME[..];` each name is told to the driver, which adds up their bytes.
static void count_static_shared(std::string &text) {
    for (size_t at = 0; (at = find_word(text, "__shared__", at)) != std::string::npos; at++) {
        size_t before = text.find_last_not_of(" \t\n", at - 1) + 1;
        if (before >= 6 && text.compare(before - 6, 6, "extern") == 0) continue;
        std::string counts;
        size_t name = 0, end = 0, from = at + 10;
        int depth = 0;
        bool open = true;
        for (;; from++) {
            char c = text[from];
            depth += strchr("([{<", c) ? 1 : strchr(")]}>", c) ? -1 : 0;
            if (depth == 0 && open && is_word(c)) {
                if (!is_word(text[from - 1])) name = from;
                end = from + 1;
            }
            if (c == '[' && depth == 1) open = false;
            if (depth > 0 || (c != ',' && c != ';')) continue;
            counts += " PW_SHARES(" + text.substr(name, end - name) + ");";
            open = true;
            if (c == ';') break;
        }
        text.insert(from + 1, counts);
    }
}

std::string rewrite(const std::string &source) {
    std::string text = source;
    std::vector<Kernel> kernels = take_kernels(text);
    count_static_shared(text);
    name_dynamic_shared(text);
    text += "\nPW_KERNELS(";
    for (size_t i = 0; i < kernels.size(); i++)
        text += (i ? ", PW_KERNEL(" : "PW_KERNEL(") + kernels[i].name + ", " + kernels[i].most_threads + ")";
    return text + ")\n";
}
