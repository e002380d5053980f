// Calls that fail because a test wants it. PIPEWRIGHT_EMULATOR_FAIL=CALL:N lets the N-th call of a function
// of the API fail, from 1; with the name `any`, the N-th call of any of them. CALL:N:CODE gives its result
// too, in place of "unknown error". Only that one call fails, and does nothing.
#include "driver.h"
#include <cstdlib>
#include <cstring>
#include <mutex>

static std::mutex &mutex = *new std::mutex;
static std::string &wanted = *new std::string, &failed = *new std::string;
static uint64_t at = 0, calls = 0;
static int code = UNKNOWN;

static void plan(const std::string &setting) {
    size_t first = setting.find(':'), second = setting.find(':', first + 1);
    wanted = setting.substr(0, first);
    at = first == std::string::npos ? 0 : strtoull(setting.c_str() + first + 1, nullptr, 10);
    code = second == std::string::npos ? (int)UNKNOWN : atoi(setting.c_str() + second + 1);
    calls = 0;
    failed.clear();
}

static bool may_be_counted(const char *call) {
    if (wanted != "any") return wanted == call;
    // If one of the calls fails by which memory and the like are given back, that is lost. So they are not
    // among "any".
    for (const char *end :
         {"Destroy", "Unload", "FreeHost", "MemFree_v2", "CtxGetCurrent", "CtxSynchronize"})
        if (strstr(call, end)) return false;
    return true;
}

API int pw_fails(const char *call) {
    std::lock_guard lock(mutex);
    static bool read = false;
    const char *setting = read ? nullptr : getenv("PIPEWRIGHT_EMULATOR_FAIL");
    read = true;
    if (setting) plan(setting);
    if (wanted.empty() || !may_be_counted(call) || ++calls != at) return false;
    failed = call;
    return true;
}

/// The result of the call that fails.
API int pw_failure() { return code; }

const char *failed_call() {
    static thread_local std::string text;
    std::lock_guard lock(mutex);
    text = failed.empty() ? "unknown error" : "the emulator was told to let " + failed + " fail";
    return text.c_str();
}

// For tests: the setting from now on, in place of the environment's; and the call that has failed, if it has.
API void pw_fail(const char *setting) {
    pw_fails("");
    std::lock_guard lock(mutex);
    plan(setting);
}

API void pw_failed(char *into, size_t bytes) {
    std::lock_guard lock(mutex);
    snprintf(into, bytes, "%s", failed.c_str());
}
