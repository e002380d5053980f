// The emulated NVRTC. The host's g++ compiles the kernels to a shared object, which is the image.
#include "rewrite.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
extern char **environ;

extern "C" int pw_fails(const char *call);
extern "C" int pw_watches();

enum Result { SUCCESS = 0, CREATION_FAILURE = 2, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5,
             COMPILATION = 6, INTERNAL = 11 };

struct Program {
    std::string source, log, image;
};

static std::string contents(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

// The folder of this library. The headers are next to it.
static std::string home() {
    Dl_info info;
    dladdr((void *)home, &info);
    std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/'));
}

// Runs a command. Its output and its errors go to the file `log`.
static bool succeeds(const std::vector<std::string> &words, const std::string &log) {
    std::vector<char *> arguments;
    for (auto &word : words) arguments.push_back((char *)word.c_str());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    pid_t child;
    int status = 1;
    bool spawned = posix_spawnp(&child, words[0].c_str(), &files, nullptr, arguments.data(), environ) == 0;
    posix_spawn_file_actions_destroy(&files);
    return spawned && waitpid(child, &status, 0) == child && status == 0;
}

// Translates an option of NVRTC for g++. False if NVRTC does not know the option.
static bool translate(const std::string &option, std::vector<std::string> &words) {
    static const char *const IGNORED[] = {
        "--std", "-std", "--use_fast_math", "-use_fast_math", "--fmad", "-fmad", "--ftz", "-ftz", "--prec-",
        "-prec-", "-lineinfo", "--generate-line-info", "-dopt", "--dopt", "--device-debug", "-G",
        "-maxrregcount", "--maxrregcount", "-diag-", "--diag-", "-w", "--disable-warnings", "-default-device",
        "--device-as-default-execution-space", "--extra-device-vectorization", "--restrict", "--minimal",
        "-minimal"};
    for (const char *name : {"--gpu-architecture=", "-arch="})
        if (option.compare(0, strlen(name), name) == 0) {
            std::string arch = option.substr(option.find('_') + 1);
            words.push_back("-D__CUDA_ARCH__=" + std::to_string(atoi(arch.c_str()) * 10));
            return true;
        }
    for (const char *name : {"-D", "-U", "-I"})
        if (option.compare(0, 2, name) == 0) return words.push_back(option), true;
    const char *const LONG[][2] =
        {{"--define-macro=", "-D"}, {"--undefine-macro=", "-U"}, {"--include-path=", "-I"}};
    for (auto &name : LONG)
        if (option.compare(0, strlen(name[0]), name[0]) == 0)
            return words.push_back(name[1] + option.substr(strlen(name[0]))), true;
    for (const char *name : IGNORED)
        if (option.compare(0, strlen(name), name) == 0) return true;
    return false;
}

// Compiles in `folder`.
static Result compile(Program &program, const std::vector<std::string> &options, const std::string &level,
                      const std::string &folder) {
    std::string source = folder + "/kernels.cu", plain = folder + "/plain.ii", host = folder + "/host.cpp";
    std::string object = folder + "/kernels.so", log = folder + "/log";
    std::ofstream(source) << program.source;
    std::vector<std::string> first =
        {"g++", "-E", "-x", "c++", "-nostdinc", "-D__CUDACC_RTC__=1", "-DPIPEWRIGHT_HOST=1"};
    first.insert(first.end(), options.begin(), options.end());
    first.insert(first.end(), {source, "-o", plain});
    if (!succeeds(first, log)) return program.log = contents(log), COMPILATION;
    std::ofstream(host) << rewrite(contents(plain));
    // A sanitizer calls a function at each access, here one of ours. So it is not linked with its library.
    std::string part = folder + "/kernels.o";
    std::vector<std::string> second = {
        "g++", "-std=c++17", level, "-fPIC", "-c", "-fvisibility=hidden", "-fno-gnu-unique",
        "-fno-exceptions", "-fno-strict-aliasing", "-ffp-contract=off", "-w", "-include",
        home() + "/kernel/shim.h", host, "-o", part};
    if (pw_watches())
        second.insert(second.end(),
                      {"-DPW_WATCHED", "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0"});
    bool built = succeeds(second, log) && succeeds({"g++", "-shared", part, "-o", object}, log);
    program.log = contents(log);
    program.image = built ? contents(object) : "";
    return built ? SUCCESS : COMPILATION;
}

static Result compile_aside(Program &program, const std::vector<std::string> &options,
                            const std::string &level) {
    char folder[] = "/tmp/pipewright-nvrtc-XXXXXX";
    if (!mkdtemp(folder)) return INTERNAL;
    Result result = compile(program, options, level, folder);
    if (getenv("PIPEWRIGHT_EMULATOR_KEEP")) {
        fprintf(stderr, "emulated NVRTC: compiled in %s\n", folder);
        return result;
    }
    for (const char *file : {"/kernels.cu", "/plain.ii", "/host.cpp", "/kernels.o", "/kernels.so", "/log"})
        unlink((folder + std::string(file)).c_str());
    rmdir(folder);
    return result;
}

// The file for the image of a program, next to this library. Its name is a hash of everything that the image
// is made from.
static std::string kept_at(const Program &program, const std::vector<std::string> &options,
                           const std::string &level) {
    uint64_t hash = 14695981039346656037u;
    auto add = [&](const std::string &text) {
        for (unsigned char byte : text + '\n') hash = (hash ^ byte) * 1099511628211u;
    };
    add(program.source);
    add(level);
    if (pw_watches()) add("watched");
    for (const std::string &option : options) add(option);
    char name[32];
    snprintf(name, sizeof name, "/%016llx.image", (unsigned long long)hash);
    return home() + name;
}

// Threads that compile the same program wait for the first of them. If another process has made the same
// image, renaming replaces it by an equal one.
static Result compile_once(Program &program, const std::vector<std::string> &options) {
    static auto *one = new std::mutex;
    std::lock_guard lock(*one);
    const char *setting = getenv("PIPEWRIGHT_EMULATOR_OPTIMIZE");
    std::string level = setting ? setting : "-O1", place = kept_at(program, options, level);
    program.image = contents(place);
    if (!program.image.empty()) return SUCCESS;
    Result result = compile_aside(program, options, level);
    std::string aside = place + "." + std::to_string(getpid());
    if (result == SUCCESS && (std::ofstream(aside) << program.image).flush())
        rename(aside.c_str(), place.c_str());
    return result;
}

// The version says too how kernels are compiled, because callers keep them by it.
API Result nvrtcVersion(int *major, int *minor) {
    return *major = 99, *minor = PW_BUILD * 2 + pw_watches(), SUCCESS;
}

API Result nvrtcCreateProgram(Program **program, const char *source, const char *, int headers,
                              const char *const *, const char *const *) {
    if (pw_fails(__func__)) return CREATION_FAILURE;
    if (!source || headers != 0) return CREATION_FAILURE;
    *program = new Program{source, "", ""};
    return SUCCESS;
}

API Result nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    if (pw_fails(__func__)) {
        program->log = "the emulator was told to let nvrtcCompileProgram fail";
        return INTERNAL;
    }
    std::vector<std::string> words;
    for (int i = 0; i < count; i++)
        if (!translate(options[i], words)) {
            program->log = std::string("nvrtc: error: unrecognized option ") + options[i] + "\n";
            return INVALID_OPTION;
        }
    return compile_once(*program, words);
}

API Result nvrtcGetCUBINSize(Program *program, size_t *bytes) {
    return program->image.empty() ? INVALID_PROGRAM : (*bytes = program->image.size(), SUCCESS);
}

API Result nvrtcGetCUBIN(Program *program, char *image) {
    return memcpy(image, program->image.data(), program->image.size()), SUCCESS;
}

API Result nvrtcGetPTXSize(Program *program, size_t *bytes) { return nvrtcGetCUBINSize(program, bytes); }

API Result nvrtcGetPTX(Program *program, char *image) { return nvrtcGetCUBIN(program, image); }

API Result nvrtcGetProgramLogSize(Program *program, size_t *bytes) {
    return *bytes = program->log.size() + 1, SUCCESS;
}

API Result nvrtcGetProgramLog(Program *program, char *log) {
    return memcpy(log, program->log.c_str(), program->log.size() + 1), SUCCESS;
}

API Result nvrtcDestroyProgram(Program **program) {
    delete *program;
    return *program = nullptr, SUCCESS;
}

API const char *nvrtcGetErrorString(Result result) {
    switch (result) {
    case SUCCESS: return "NVRTC_SUCCESS";
    case CREATION_FAILURE: return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case COMPILATION: return "NVRTC_ERROR_COMPILATION";
    default: return "NVRTC_ERROR_INTERNAL_ERROR";
    }
}
